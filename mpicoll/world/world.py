"""Ranks, mailboxes and the scheduler: N ranks in one process run until all have finished or nothing can move."""

from __future__ import annotations

import collections
import dataclasses
import random
from collections.abc import Sequence
from typing import Any

from ..language import Call, Program
from .faults import Deadlock, Unreceived, Unsent, WrongLength
from .items import Message, Route, Work, lane_name
from .memory import Memory, same
from .nothing import Nothing, Unchecked
from .numeric import Numbers
from .path import Path
from .symbols import Symbols


@dataclasses.dataclass
class Counts:
    """What one rank did: rounds (yields with a message of their own, over all its lanes), messages and bytes sent,
    bytes reduced; and messages and bytes in the busier direction, sent or received, summed over the rounds."""

    rounds: int = 0
    messages: int = 0
    sent: int = 0
    reduced: int = 0
    port_messages: int = 0
    port_bytes: int = 0

    def round(self, messages: Sequence[Message]) -> None:
        """A round with these messages of its own is counted."""
        sent = [message.array.nbytes for message in messages if message.sends]
        received = [message.array.nbytes for message in messages if not message.sends]
        self.rounds += 1
        self.messages += len(sent)
        self.sent += sum(sent)
        self.port_messages += max(len(sent), len(received))
        self.port_bytes += max(sum(sent), sum(received))


class Rank(Call):
    """One rank's side of the language: everything made is recorded, and done when it has been yielded."""

    made: list[Message | Work]

    __slots__ = ("counts", "rank", "values", "world")

    def __init__(self, world: World, rank: int) -> None:
        super().__init__(rank, world.size, self.reduce, self.finish)
        self.world, self.rank, self.values, self.counts = world, rank, world.values, Counts()

    def isend(self, array: Memory, peer: int, number: int) -> Any:
        return self._make(Message(self.rank, array, peer, number, sends=True))

    def irecv(self, array: Memory, peer: int, number: int) -> Any:
        return self._make(Message(self.rank, array, peer, number, sends=False))

    def reduce(self, out: Memory, a: Memory, b: Memory) -> Any:
        return self._make(Work("op", self.values.reduce, out, a, b))

    def finish(self, out: Memory) -> Any:
        return self._make(Work("finish", self.values.finish, out))

    def copy(self, out: Memory, array: Memory) -> Any:
        return self._make(Work("copy") if same(out, array) else Work("copy", self.values.copy, out, array))

    def scratch(self, like: Memory, count: int) -> Memory:
        return self.values.scratch(like, count)

    def _make(self, item: Message | Work) -> Any:
        self.made.append(item)
        return item


class World:
    """`size` ranks and the mailboxes between them.

    Args:
        size: the number of ranks.
        values: the kind of data, `Symbols(size)` by default, `Numbers(op, size)`, or `Nothing`, which is not counted.
        seed: the order in which ranks take their steps is drawn from it; by default they take turns.
    """

    def __init__(self, size: int, values: Symbols | Numbers | Nothing | None = None, seed: int | None = None) -> None:
        self.size, self.values = size, values or Symbols(size)
        self.ranks = [Rank(self, rank) for rank in range(size)]
        self.ready: collections.deque[Path] = collections.deque()  # the paths whose round is complete
        self._random = None if seed is None else random.Random(seed)
        self._roots: list[Path] = []
        self._mailboxes: dict[Route, collections.deque[Message]]  # what waits to be matched, in order
        self._mailboxes = collections.defaultdict(collections.deque)

    def run(self, program: Program) -> list[Counts]:
        """Every rank has run the generator `program(comm, op)` to its end; returns the ranks' Counts."""
        path = Unchecked if isinstance(self.values, Nothing) else Path
        self._roots = [path(self, rank, program(rank.comm, rank.op)) for rank in self.ranks]
        for root in self._roots:
            self.begin(root)
        while self.ready or self.advance():
            if self._random:
                self.ready.rotate(self._random.randrange(len(self.ready)))
            self.ready.popleft().step()
        self._check_nobody_waits()
        return [rank.counts for rank in self.ranks]

    # What takes time in a world with a clock: see `clock`.

    def begin(self, root: Path) -> None:
        """A rank starts."""
        root.done()

    def deliver(self, send: Message, receive: Message) -> None:
        """A message that has been matched arrives."""
        receive.path.done()
        send.path.done()

    def takes_time(self, reduction: Work) -> bool:
        """Whether a reduction is still under way, so that `reduction.path.done()` follows later."""
        return False

    def advance(self) -> bool:
        """No path is ready now; whether one may be after some time."""
        return False

    def unheard(self) -> list[list[int]]:
        """For every rank the ranks of whose start it never heard, by no chain of messages: it may end before theirs."""
        return [[rank for rank in range(self.size) if not root.heard >> rank & 1] for root in self._roots]

    def _check_nobody_waits(self) -> None:
        """Nothing waits to be matched; otherwise the fault says who waits for whom."""
        waiting = [message for mailbox in self._mailboxes.values() for message in mailbox]
        waiting.sort(key=lambda message: (message.rank, message.number))
        finished = [rank for rank, root in enumerate(self._roots) if root.finished]
        for message in waiting:
            if message.peer in finished and message.sends:
                raise Unreceived(f"{_where(message)} is never received: rank {message.peer} has finished")
            if message.peer in finished:
                raise Unsent(f"{_where(message)} waits for ever: rank {message.peer} has finished")
        if waiting:
            raise Deadlock("\n".join([_circle(waiting), *(f"{_where(message)} waits" for message in waiting)]))

    def post(self, message: Message) -> None:
        """The message is matched, or waits in its mailbox."""
        if message.sends:
            self.values.read(message.array)
        else:
            self.values.poison(message.array)
        mailbox = self._mailboxes[message.route]
        if mailbox and mailbox[0].sends != message.sends:
            self._match(message, mailbox.popleft())
        else:
            mailbox.append(message)

    def _match(self, one: Message, other: Message) -> None:
        send, receive = (one, other) if one.sends else (other, one)
        if len(send.array) != len(receive.array):
            raise WrongLength(f"meets {_where(other)}")
        receive.array[:] = send.array
        receive.heard = send.heard
        self.deliver(send, receive)


def _where(message: Message) -> str:
    return f"rank {message.rank}{lane_name(message.number)}, round {message.round}: {message}"


def _circle(waiting: Sequence[Message]) -> str:
    """ "rank 1 -> rank 2 -> rank 1": each waits for the next."""
    peers = {message.rank: message.peer for message in reversed(waiting)}
    rank, trail = waiting[0].rank, []
    while rank not in trail:
        trail.append(rank)
        rank = peers[rank]
    circle = [*trail[trail.index(rank) :], rank]
    return "who waits for whom: " + " -> ".join(f"rank {rank}" for rank in circle)
