"""One rank's way through an algorithm: its generator runs alone, and what it makes is noted.

Rounds depend on rank, size, counts and options, never on data. So no other rank is needed to know which messages a rank
sends and receives, to whom and how long, exactly, for every algorithm, out of its one text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import GeneratorType
from typing import Any, NamedTuple

from ..language import Call, Item
from ..world.clock import hollow
from ..world.nothing import Length, Nothing


class Noted(NamedTuple):
    """A message as one of its sides posts it."""

    peer: int
    nbytes: int
    sends: bool


class Round(NamedTuple):
    """What one yield delivers, its lanes included: messages, bytes reduced, and how many copies, reductions and views
    of arrays were made for it."""

    messages: list[Noted]
    reduced: int
    made: int


def walk(
    collective: str,
    algorithm: str,
    ranks: Sequence[int],
    counts: Sequence[Any],
    itemsize: int,
    root: int = 0,
    **options: Any,
) -> Iterator[list[Round]]:
    """The rounds of each of these ranks; the other arguments as in `cost.of`."""
    values = _Views(itemsize)
    program = hollow(collective, algorithm, counts, values, root, **options)
    for rank in ranks:
        values.made = 0
        call = _Notes(rank, len(counts), values)
        yield [_round(call, items) for items in program(call.comm, call.op)]


def _round(call: _Notes, items: Any) -> Round:
    messages, reduced, made = call.made, call.reduced, call.values.made
    call.made, call.reduced, call.values.made = [], 0, 0
    for lane in items if isinstance(items, tuple) else (items,):
        if isinstance(lane, GeneratorType):
            for inner in lane:
                more = _round(call, inner)
                messages += more.messages
                reduced += more.reduced
                made += more.made
    return Round(messages, reduced, made)


class _Views(Nothing):
    """Counts the arrays that are made, whole or as views, and what else is told it."""

    def __init__(self, itemsize: int) -> None:
        super().__init__(itemsize)
        self.made, one = 0, self.array

        def array(count: int) -> Length:
            self.made += 1
            return one(count)

        self.array = array


class _Notes(Call):
    """Notes messages, how many bytes are reduced, and how often; does nothing."""

    made: list[Noted]

    __slots__ = ("reduced", "values")

    def __init__(self, rank: int, size: int, values: _Views) -> None:
        super().__init__(rank, size, self.reduce, None)
        self.values, self.reduced = values, 0

    def isend(self, array: Length, peer: int, number: int) -> Item:
        self.made.append(Noted(peer, array.nbytes, True))
        return None

    def irecv(self, array: Length, peer: int, number: int) -> Item:
        self.made.append(Noted(peer, array.nbytes, False))
        return None

    def reduce(self, out: Length, a: Length, b: Length) -> Item:
        self.reduced += out.nbytes
        self.values.made += 1
        return None

    def copy(self, out: Length, array: Length) -> Item:
        self.values.made += 1
        return None

    def scratch(self, like: Length, count: int) -> Any:
        return self.values.array(count)
