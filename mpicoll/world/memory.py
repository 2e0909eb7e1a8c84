"""Who touches which memory: the accesses of a round, as intervals of addresses, and the search for two that clash."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias

from numpy.typing import NDArray

Memory: TypeAlias = NDArray[Any]


class Access(NamedTuple):
    """The item reads, or writes, the bytes from start to stop; it keeps them alive, so that no array made later has
    the same addresses."""

    start: int
    stop: int
    writes: bool
    item: object


def access(array: Memory, writes: bool, item: object) -> Access:
    """The access of `item` to a contiguous array."""
    start = array.__array_interface__["data"][0]
    return Access(start, start + array.nbytes, writes, item)


def same(one: Memory, other: Memory) -> bool:
    """Whether two arrays are the same memory, from the first byte to the last."""
    return access(one, False, None) == access(other, False, None)


def clash(groups: Sequence[Sequence[Access]]) -> tuple[Access, Access] | None:
    """Two accesses of different groups that share memory and of which at least one writes, or None.

    Accesses are visited by their start; the earlier ones of a group can only reach into the present one if the
    furthest of them does. So this is a sort and one pass, however long the lives of the lanes were.
    """
    furthest: list[Access | None] = [None] * len(groups)  # of each group, the access that reaches furthest
    furthest_write: list[Access | None] = [None] * len(groups)
    everything = [(a.start, g, a) for g, group in enumerate(groups) for a in group if a.start < a.stop]
    for start, group, this in sorted(everything, key=itemgetter(0)):
        for g, earlier in enumerate(furthest if this.writes else furthest_write):
            if g != group and earlier and earlier.stop > start:
                return earlier, this
        for reach in (furthest, furthest_write) if this.writes else (furthest,):
            known = reach[group]
            if known is None or known.stop < this.stop:
                reach[group] = this
    return None
