"""A path: one generator of one rank, the root or a lane, and the round it is in."""

from __future__ import annotations

from collections.abc import Sequence
from types import GeneratorType
from typing import TYPE_CHECKING, Any

from ..language import LANES, Algorithm, Item
from .faults import Fault, NotYielded, Overlap, ReadOnly, SharedLane, UnknownItem, WrongLength, WrongPath
from .items import Message, Route, Work, lane_name
from .memory import Access, clash

if TYPE_CHECKING:
    from .world import Rank, World


class Path:
    """A generator that is stepped each time its round is complete.

    Attributes:
        number: the lane's number as in `language.Comm`; None until the lane makes its first message.
        heard: the ranks, a bit each, that are known here to have started: a message that was received tells it, a
            message that was sent does not, since MPI may complete a send before anybody has received it.
        accesses, routes: what it and its lanes touched over the whole life so far; only kept for lanes.
        finished: the generator has ended.
    """

    def __init__(self, world: World, call: Rank, generator: Algorithm, parent: Path | None = None) -> None:
        self.world, self.call, self.generator, self.parent = world, call, generator, parent
        self.number = 0 if parent is None else None
        self.heard: int = parent.heard if parent else 1 << call.rank
        self.accesses: list[Access] = []
        self.routes: set[Route] = set()
        self.finished = False
        self._rounds = 0
        self._own: list[Message | Work] = []  # the round: all that was made, the messages among it, and lanes
        self._messages: list[Message] = []
        self._lanes: list[Path] = []
        self._pending = 1  # to be begun

    def __str__(self) -> str:
        """Where it is; work in a yield without messages counts to the round before."""
        lane = " on a lane" if self.number is None else lane_name(self.number)
        return f"rank {self.call.rank}{lane}, round {max(self._rounds - 1, 0)}"

    def step(self) -> None:
        """The round that is complete has been checked, and the next one has begun or the generator has ended."""
        self._end_round()
        try:
            items = next(self.generator)
        except StopIteration:
            self._take_made(())
            self.finished = True
            if self.parent:
                self.parent.done()
        else:
            self._begin_round(items if isinstance(items, tuple) else (items,))

    def done(self) -> None:
        """One thing that the round waited for is complete; or the path, which had not begun, begins."""
        self._pending -= 1
        if self._pending == 0:
            self.world.ready.append(self)

    def _begin_round(self, items: tuple[Item, ...]) -> None:
        """What was yielded keeps the rules, is posted and done in the order made, and its lanes are ready to start."""
        self._own = self._take_made(items)
        self._lanes = [
            type(self)(self.world, self.call, item, self) for item in items if isinstance(item, GeneratorType)
        ]
        self._messages = [item for item in self._own if isinstance(item, Message)]
        if self._messages:
            self._rounds += 1
            self.call.counts.round(self._messages)
        for index, message in enumerate(self._messages):
            if not self._claim(message.number):
                raise WrongPath(f"{self}: {message} is made{lane_name(message.number) or ' on the root'}")
            message.path, message.round, message.index, message.heard = self, self._rounds - 1, index, self.heard
        self._check_overlap([])
        self._pending = 1 + len(self._messages) + len(self._lanes)
        for item in self._own:
            self._carry_out(item)
        for lane in self._lanes:  # their first step comes after the round's own items were posted
            lane.done()
        self.done()

    def _take_made(self, items: tuple[Item, ...]) -> list[Message | Work]:
        """What was made since the last yield, all of which is among the yielded items, and nothing else is."""
        made, self.call.made = self.call.made, []
        yielded = [item for item in items if not (item is None or isinstance(item, GeneratorType))]
        for item in _beyond(made, yielded):
            raise NotYielded(f"{self}: {item} was made and is not in the yield that follows")
        for item in _beyond(yielded, made):
            raise UnknownItem(f"{self}: {item} was yielded and was not made since the yield before")
        return made

    def _claim(self, number: int) -> bool:
        """Whether the path's number is this one: its first message tells it, and a lane's tells its parent's."""
        if self.number is None and number > 0 and self.parent and self.parent._claim((number - 1) // LANES):
            self.number = number
        return self.number == number

    def _carry_out(self, item: Message | Work) -> None:
        try:
            if item.written is not None and not item.written.flags.writeable:
                raise ReadOnly("its array is only to be read")
            if isinstance(item, Message):
                self.world.post(item)
            elif item.do:
                _check_operands(item)
                item.do(*item.arrays)
                if item.name == "op":
                    self.call.counts.reduced += item.arrays[0].nbytes
                    item.path = self
                    self._pending += self.world.takes_time(item)
        except Fault as fault:
            raise type(fault)(f"{self}: {item}: {fault}") from None

    def _end_round(self) -> None:
        """What was heard is known from now on; the lanes, over their whole lives, kept clear of all else in it."""
        for message in self._messages:
            self.heard |= message.heard
        for lane in self._lanes:
            self.heard |= lane.heard
        if self._lanes:
            self._check_overlap([lane.accesses for lane in self._lanes])
            self._check_routes()
        if self.parent:
            for part in (*self._own, *self._lanes):
                self.accesses += part.accesses
            self.routes |= self._own_routes().union(*(lane.routes for lane in self._lanes))

    def _check_overlap(self, lanes: list[list[Access]]) -> None:
        """Messages, lanes and the work as a whole touch nothing that another of them writes.

        Work is one group, since it is done in the order written.
        """
        groups = [message.accesses for message in self._messages]
        groups.append([access for item in self._own if isinstance(item, Work) for access in item.accesses])
        if found := clash(groups + lanes):
            raise Overlap(f"{self}: {found[0].item} and {found[1].item} share memory")

    def _check_routes(self) -> None:
        taken = self._own_routes()
        for lane in self._lanes:
            if shared := taken & lane.routes:
                source, dest, number = min(shared)
                raise SharedLane(f"{self}: messages from rank {source} to rank {dest}{lane_name(number)} of two lanes")
            taken = taken | lane.routes

    def _own_routes(self) -> set[Route]:
        return {message.route for message in self._messages}


def _beyond(items: Sequence[Any], others: Sequence[Any]) -> list[Any]:
    """The items that are not among the others."""
    known = set(map(id, others))
    return [item for item in items if id(item) not in known]


def _check_operands(work: Work) -> None:
    out, *operands = work.accesses
    for operand in operands:
        if operand.stop - operand.start != out.stop - out.start:
            raise WrongLength(f"operands of {', '.join(str(len(array)) for array in work.arrays)} elements")
        if operand[:2] != out[:2] and clash([[out], [operand]]):
            raise Overlap("out shares a part of an operand's memory")
