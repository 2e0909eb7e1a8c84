"""What an algorithm makes: messages, which have to be matched, and local work, which is done when it is yielded.

`accesses` are the item's accesses to memory, `written` is the array it writes or None.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from ..language import LANES
from .memory import Access, Memory, access

if TYPE_CHECKING:
    from .path import Path

Route: TypeAlias = tuple[int, int, int]  # source, dest, lane number


class Message:
    """A send or a receive, as one side posts it; `path`, `round` and `index` (in the round) are where it was yielded.

    Messages on the same `route` match in order. `heard` is the set of ranks (a bit each) whose start the sender knew of
    when it posted the message.
    """

    path: Path
    round: int
    index: int
    heard: int
    __slots__ = ("array", "heard", "index", "number", "path", "peer", "rank", "round", "route", "sends", "written")

    def __init__(self, rank: int, array: Memory, peer: int, number: int, sends: bool) -> None:
        self.rank, self.array, self.peer, self.number, self.sends = rank, array, peer, number, sends
        self.written = None if sends else array
        self.route: Route = (rank, peer, number) if sends else (peer, rank, number)

    @property
    def accesses(self) -> list[Access]:
        return [access(self.array, not self.sends, self)]

    def __str__(self) -> str:
        what = f"to rank {self.peer}" if self.sends else f"from rank {self.peer}"
        return f"{'send' if self.sends else 'receive'} of {len(self.array)} elements {what}"


class Work:
    """Local work: `do(out, *operands)`; work without arrays is nothing to do and touches nothing.

    `path` is where a reduction was yielded.
    """

    path: Path
    __slots__ = ("arrays", "do", "name", "path", "written")

    def __init__(self, name: str, do: Callable[..., None] | None = None, *arrays: Memory) -> None:
        self.name, self.do, self.arrays = name, do, arrays
        self.written = arrays[0] if arrays else None

    @property
    def accesses(self) -> list[Access]:
        return [access(array, array is self.written, self) for array in self.arrays]

    def __str__(self) -> str:
        return f"{self.name} of {len(self.arrays[0])} elements" if self.arrays else self.name


def lane_name(number: int) -> str:
    """How a fault names a path by its number: nothing for the root, " on lane 2 of lane 0" for a lane of a lane."""
    names = []
    while number:
        number, k = divmod(number - 1, LANES)
        names.append(f"lane {k}")
    return " on " + " of ".join(names) if names else ""
