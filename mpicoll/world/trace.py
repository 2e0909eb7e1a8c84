"""Worlds that write down what happens in them: every message with its content, or how much memory and traffic it took.

world = Recorded(4)
proof = prove("allreduce", "ring", 4, 4, world=world)
world.passed()[0]      Passed(step=0, source=0, dest=1, number=0, values=(element 3 = x0,))
"""

from __future__ import annotations

import collections
from typing import NamedTuple

from ..links import Link, uniform
from .clock import Clock, Transfer
from .items import Message, Route
from .memory import Memory
from .symbols import Symbols, Value
from .world import Rank, World

UNIT = Link("step", alpha=1, beta=0)  # every message takes a step, whatever its length


class Passed(NamedTuple):
    """A message that was passed on: in which step, between which ranks, on which lane (its number), what was in it."""

    step: int
    source: int
    dest: int
    number: int
    values: tuple[Value, ...]


class Recorded(Clock):
    """A world of symbols in which a message takes a step, one at a time in each direction of a rank's port."""

    def __init__(self, size: int) -> None:
        super().__init__(uniform(UNIT, size), Symbols(size), trace=True)
        self._contents: dict[Route, list[tuple[Value, ...]]] = collections.defaultdict(list)

    def deliver(self, send: Message, receive: Message) -> None:
        self._contents[send.route].append(tuple(send.array.tolist()))
        super().deliver(send, receive)

    def passed(self) -> list[Passed]:
        """All messages, step by step; those of one route pass in the order in which they were sent."""
        contents = {route: iter(values) for route, values in self._contents.items()}
        transfers = sorted(event for event in self.trace if isinstance(event, Transfer))
        return [
            Passed(int(t.start), t.source, t.dest, t.number, next(contents[t.source, t.dest, t.number]))
            for t in transfers
        ]


class Measured(World):
    """A world of symbols that counts, for each rank, the bytes it received and the elements of scratch it took."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.received = [0] * size
        self.scratch = [0] * size
        self.ranks = [_Measured(self, rank) for rank in range(size)]

    def deliver(self, send: Message, receive: Message) -> None:
        self.received[receive.rank] += receive.array.nbytes
        super().deliver(send, receive)


class _Measured(Rank):
    world: Measured

    __slots__ = ()

    def scratch(self, like: Memory, count: int) -> Memory:
        self.world.scratch[self.rank] += count
        return super().scratch(like, count)
