"""The world with a clock: the same ranks run the same generators, and messages and reductions take time.

    timing = simulate("allreduce", "ring", [1000] * 64, 4, parse("nvlink4x8+ndr", 64), gamma=1e-12)
    timing.seconds                 when the last rank had finished
    timing.ends[rank]              when this rank had
    timing.trace                   every Transfer and Reduction, if trace=True

The rules. A message of m bytes takes alpha + m beta of the link between its two ranks (`Link.rates`). A rank has one
port for each direction, which all its lanes share and which carries one message at a time; NVLink, PCIe and the network
each have their own, so that a rank can send within its node and to another one at once. A message starts when both
sides have posted it and both ports are free, and holds them until it has arrived. Of several that could start, the one
that was ready first does, then the one posted first in its round, then that of the lowest rank; one whose other port is
busy lets others pass. Where ranks share a NIC, the bytes of their messages (not the alphas) pass it one message after
the other, in the order in which the messages start; so a message may wait there, holding its ports. A rank has one
reducer, which takes gamma for a byte, in the order in which reductions are yielded; copies and `finish` take no time. A
round ends when all that is in it has ended.

Times are only added, multiplied and compared: with integers or fractions for alpha, beta and gamma they are exact.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

from ..algorithms import cut
from ..language import Program
from ..links import Link, Topology
from .items import Message, Work
from .nothing import Nothing
from .path import Path
from .proof import bind
from .symbols import Symbols
from .world import World


class Transfer(NamedTuple):
    """A message on its way. start: both sides have posted it and have a port for it; stop: it has arrived."""

    start: float
    stop: float
    source: int
    dest: int
    nbytes: int
    link: str
    number: int  # of the lane
    round: int  # of the source


class Reduction(NamedTuple):
    """A local reduction: both operands are nbytes long."""

    start: float
    stop: float
    rank: int
    nbytes: int


class Timing(NamedTuple):
    """When each rank had finished, and what happened, in the order of the starts; empty unless it was asked for."""

    ends: list[float]
    trace: list[Transfer | Reduction]

    @property
    def seconds(self) -> float:
        """When the last rank had finished."""
        return max(self.ends)

    def crossed(self) -> dict[str, tuple[int, int]]:
        """How many messages and bytes each kind of link carried, by its name; from the trace."""
        found: dict[str, tuple[int, int]] = {}
        for event in self.trace:
            if isinstance(event, Transfer):
                messages, nbytes = found.get(event.link, (0, 0))
                found[event.link] = messages + 1, nbytes + event.nbytes
        return found


_Matched: TypeAlias = tuple[float, int, int, int, Message, Message]  # since when; the order; its two sides
_Way: TypeAlias = tuple[int, int, tuple[int, int] | None, Link]  # the numbers of the ports and NICs on a message's way


class Clock(World):
    """A world on the links of a topology.

    Args:
        topology: the links; its size is the world's.
        values: the kind of data; with `Nothing` a run is fast, with `Symbols` it is also checked.
        gamma: seconds for a byte reduced.
        starts: when each rank starts; by default all at 0.
        trace: Transfers and Reductions are kept.

    Attributes:
        now: the time.
        ends: when each rank last had something to do.
    """

    def __init__(
        self,
        topology: Topology,
        values: Nothing | Symbols,
        gamma: float = 0,
        starts: Sequence[float] | None = None,
        trace: bool = False,
    ) -> None:
        size = topology.size
        super().__init__(size, values)
        self.now: float = 0
        self.ends: list[float] = [0] * size if starts is None else list(starts)
        if len(self.ends) != size or min(self.ends) < 0:
            raise ValueError(f"clock: starts are {self.ends}; there must be one, 0 or later, for each of {size} ranks")
        self.trace: list[Transfer | Reduction] = []
        self._traces, self._topology, self._gamma = trace, topology, gamma
        self._ways: dict[tuple[int, int], _Way] = {}  # by source and dest
        self._ports: dict[object, int] = {}  # the numbers of ports and NICs
        self._free: list[float] = []  # since when, or from when on, each of them is free
        self._reducer: list[float] = [0] * size  # the same, of every rank's reducer
        self._matched: list[_Matched] = []  # what may start now
        self._queues: dict[int, list[_Matched]] = {}  # what waits, by the port that was found busy
        self._due: dict[float, list[Message | Work]] = {}  # what ends, by the time
        self._instants: list[float] = []  # those times, a heap

    def begin(self, root: Path) -> None:
        start = Work("start")
        start.path = root
        self._at(self.ends[root.call.rank], start)

    def deliver(self, send: Message, receive: Message) -> None:
        self._matched.append((self.now, send.index, send.rank, send.number, send, receive))

    def takes_time(self, reduction: Work) -> bool:
        rank, nbytes = reduction.path.call.rank, reduction.arrays[0].nbytes
        start = max(self.now, self._reducer[rank])
        stop = self._reducer[rank] = start + nbytes * self._gamma
        if self._traces:
            self.trace.append(Reduction(start, stop, rank, nbytes))
        if stop > self.now:
            self._at(stop, reduction)
        return stop > self.now

    def advance(self) -> bool:
        """What can start now has, and it is the time at which the next round ends; False if nothing is under way."""
        while not self.ready:
            self._start_messages()
            if not self._instants:
                return False
            self.now = heapq.heappop(self._instants)
            for item in self._due.pop(self.now):
                if self._queues and isinstance(item, Message):  # its port is free
                    way = self._ways[item.route[:2]]
                    self._matched += self._queues.pop(way[0] if item.sends else way[1], ())
                self.ends[item.path.call.rank] = self.now
                item.path.done()
        return True

    def _at(self, time: float, *items: Message | Work) -> None:
        due = self._due.get(time)
        if due is None:
            due = self._due[time] = []
            heapq.heappush(self._instants, time)
        due += items

    def _start_messages(self) -> None:
        """Every message that can start now has, in order, and the others queue for a port."""
        matched, self._matched = sorted(self._matched), []
        now, free = self.now, self._free
        for message in matched:
            send, receive = message[-2:]
            source, dest, nbytes = send.rank, receive.rank, send.array.nbytes
            out, into, nics, link = self._ways.get((source, dest)) or self._way(source, dest)
            if free[out] > now or free[into] > now:
                self._queues.setdefault(out if free[out] > now else into, []).append(message)
                continue
            alpha, beta = link.rates(nbytes)
            if nics:
                bytes_start = max(now + alpha, free[nics[0]], free[nics[1]])
                stop = free[nics[0]] = free[nics[1]] = bytes_start + nbytes * beta
            else:
                stop = now + (alpha + nbytes * beta)
            free[out] = free[into] = stop
            if self._traces:
                self.trace.append(Transfer(now, stop, source, dest, nbytes, link.name, send.number, send.round))
            self._at(stop, send, receive)

    def _way(self, source: int, dest: int) -> _Way:
        link, nics = self._topology.link(source, dest), self._topology.nics(source, dest)
        out, into = self._port(source, "out", link.kind), self._port(dest, "in", link.kind)
        shared = nics and (self._port("out", nics[0]), self._port("in", nics[1]))
        self._ways[source, dest] = found = out, into, shared, link
        return found

    def _port(self, *what: object) -> int:
        if what not in self._ports:
            self._ports[what] = len(self._free)
            self._free.append(0)
        return self._ports[what]


def simulate(
    collective: str,
    algorithm: str,
    counts: Sequence[Any],
    itemsize: int,
    topology: Topology,
    gamma: float = 0,
    root: int = 0,
    starts: Sequence[float] | None = None,
    order: Sequence[int] | None = None,
    trace: bool = False,
    **options: Any,
) -> Timing:
    """The collective's times on these links; counts, itemsize, root and options are those of `cost.predict`.

    Args:
        gamma: seconds for a byte reduced.
        starts: when each rank enters the call; by default all at 0.
        order: the algorithm's rank i, with chunk i, is rank order[i] of the topology; by default rank i.
        trace: the Timing has one.

    Raises:
        ValueError: counts, starts or order do not fit the topology.
    """
    size = topology.size
    if len(counts) != size:
        raise ValueError(f"simulate: {len(counts)} counts for a topology of {size} ranks")
    if order is not None and sorted(order) != list(range(size)):
        raise ValueError(f"simulate: order is {list(order)}; it must have each of {size} ranks once")
    values = Nothing(itemsize)
    program = hollow(collective, algorithm, counts, values, root, **options)
    clock = Clock(topology, values, gamma, starts, trace)
    clock.run(program if order is None else lambda comm, op: program(comm.group(order), op))
    return Timing(clock.ends, sorted(clock.trace))


def hollow(
    collective: str, algorithm: str, counts: Sequence[Any], values: Nothing, root: int = 0, **options: Any
) -> Program:
    """The algorithm as a program on arrays of nothing; arguments as in `simulate`."""
    if collective == "alltoall":
        counts = cut.rows(counts)
    arguments = [
        [None if count is None else values.array(count) for count in _lengths(collective, counts, root, rank)]
        for rank in range(len(counts))
    ]
    return bind(collective, algorithm, arguments, counts, root, options)


_WHAT = {  # what a rank passes: all, its own chunk, or none of it; upper case on the root only
    "broadcast": "a",
    "reduce": "aA",
    "allreduce": "aa",
    "reduce_scatter": "ao",
    "allgather": "oa",
    "gather": "oA",
    "scatter": "Ao",
    "barrier": "n",
}


def _lengths(collective: str, counts: Sequence[Any], root: int, rank: int) -> list[int | None]:
    """How long the arrays are that a rank passes."""
    if collective == "alltoall":
        return [sum(counts[rank]), sum(row[rank] for row in counts)]
    length = {"a": sum(counts), "o": counts[rank], "n": 0, "A": sum(counts) if rank == root else None}
    return [length[what] for what in _WHAT[collective]]
