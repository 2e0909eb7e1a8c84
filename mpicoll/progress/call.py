"""A collective under way on a real communicator."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from mpi4py import MPI

from ..arrays import DATATYPES, Event, Kind
from ..language import NUMBERS, Call, Program
from .staging import WINDOW, Route, Staged
from .transport import About, Transport

# Longer messages are cut, so that counts always fit MPI's int, and the pieces of a staged message overlap. The limit is
# the same for all kinds of arrays: what one rank sends from a device another may receive in host memory. All pieces but
# the last are full, and the last is not: so if a rank sends more than another expects, a piece is too long for its
# receive, which is found, and does not wait for the next call. Whoever calls `recv` need not know the length, so only
# what is too long for MPI is cut there.
MESSAGE_LIMIT, POINT_TO_POINT_LIMIT = 4 << 20, 1 << 30  # bytes


class Job:
    """A checked call, ready to be run in any way.

    Attributes:
        name: the collective's.
        kind: of its arrays.
        dtype, datatype: NumPy's and MPI's.
        nbytes: of the whole buffer.
        op: the operation's name.
        program: (comm, op) to the algorithm's generator.
        result: what the caller gets at the end.
        ready: gives the event that the first step waits for, each time the job is started.
        routes: of a point-to-point call, the peers and whether it sends to them.
        algorithm: the function of the algorithm, if it is a collective.
    """

    __slots__ = (
        "algorithm",
        "datatype",
        "dtype",
        "kind",
        "name",
        "nbytes",
        "op",
        "program",
        "ready",
        "result",
        "routes",
    )

    def __init__(
        self,
        name: str,
        kind: Kind,
        array: Any,
        op: str,
        program: Program,
        result: Any,
        routes: Sequence[tuple[int, bool]] = (),
        algorithm: Callable[..., Any] | None = None,
    ) -> None:
        self.name, self.kind, self.op, self.program, self.result = name, kind, op, program, result
        self.algorithm = algorithm
        self.ready: Callable[[], Event | None] = kind.ready
        self.routes = routes
        self.dtype, self.nbytes, self.datatype = array.dtype, array.nbytes, DATATYPES[array.dtype]


class LiveCall(Call):
    """A call whose Isend and Irecv are MPI's. `made` lists (request, array, peer, whether it is sent).

    `about` tells what it is without keeping an array alive. `status` is that of the last test, to be looked at right
    after an error. `began_at` is when the caller's queued work was done (`time.perf_counter()`), None if there was none
    to wait for. `job`, and with it the arrays, is kept until it ends.
    """

    __slots__ = (
        "about", "began_at", "datatype", "direct", "job", "kind", "limit", "name", "posted", "scratches", "span",
        "staged", "status", "tag", "transport",
    )  # fmt: skip

    def __init__(self, transport: Transport, job: Job, block: int) -> None:
        kind, size = job.kind, transport.size
        self.transport, self.name, self.kind = transport, job.name, kind
        self.job: Job | None = job
        self.about: About = job.name, job.algorithm, job.nbytes
        self.datatype = None if kind.direct else job.datatype  # what is on a device travels as bytes
        self.direct, self.span = kind.direct, kind.span
        self.limit = POINT_TO_POINT_LIMIT if block == transport.point_to_point else MESSAGE_LIMIT
        self.tag = NUMBERS * block
        self.scratches: list[tuple[Any, list[Any]]] = []
        self.began_at: float | None = None
        self.posted = False  # of a point-to-point call: its messages are posted, or in their turn
        self.status = MPI.Status()
        self.staged: dict[Route, deque[Staged]] = {}  # the last messages of each route, if there are staged ones
        reduce, finish = kind.reduction(job.op), kind.finishing(job.op, size)
        super().__init__(transport.rank, size, self._work(reduce), finish and self._work(finish))

    def _work(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """What `op` is to do for a local `function`: just that."""
        return function

    def isend(self, array: Any, peer: int, number: int) -> Any:
        return self._post(array, peer, number, True)

    def irecv(self, array: Any, peer: int, number: int) -> Any:
        return self._post(array, peer, number, False)

    def _post(self, array: Any, peer: int, number: int, sending: bool) -> Any:
        if array.nbytes < self.limit:
            return self._piece(array, peer, number, sending)
        length = max(1, self.limit // array.itemsize)
        starts = range(0, len(array) + 1, length)
        return tuple(self._piece(array[start : start + length], peer, number, sending) for start in starts)

    def _piece(self, array: Any, peer: int, number: int, sending: bool) -> Any:
        request = self._message(array, peer, number, sending)
        self.made.append((request, array, peer, sending))
        return request

    def _message(self, array: Any, peer: int, number: int, sending: bool) -> Any:
        transport, tag = self.transport, self.tag + number
        if sending:
            transport.bytes_sent += array.nbytes
        if self.direct and (staged := self._stage(array, peer, tag, sending)):
            staged.Start()
            return staged
        if sending:
            return transport.mpi.Isend(self._buffer(array), peer, tag)
        return transport.mpi.Irecv(self._buffer(array), peer, tag)

    def _stage(self, array: Any, peer: int, tag: int, sending: bool) -> Staged | None:
        """The message by way of host memory; None if it may leave or arrive as it is, at once."""
        kind, route, nbytes = self.kind, (peer, tag, sending), array.nbytes
        straight = nbytes == 0 or not self.direct or self.direct(array)
        if straight and route not in self.staged:
            return None
        latest = self.staged.setdefault(route, deque(maxlen=WINDOW))
        before = latest[0] if len(latest) == WINDOW else None
        host: Any = None
        if not straight:
            if before is None or before.memory is None or len(before.memory) < nbytes:
                before = None
                self.scratches.append(self.transport.take(kind.pinned, nbytes))
            host = (before.memory if before else self.scratches[-1][0])[:nbytes]

        def copy(count: int) -> Event:
            return kind.to_host(host, array) if sending else kind.to_device(array, host[:count])

        post = self._posting(self._buffer(array) if straight else (host, nbytes, MPI.BYTE), peer, tag, sending)
        staged = Staged(host, copy, post, sending, before, self.transport.waiting[route])
        latest.append(staged)
        return staged

    def _posting(self, buffer: Any, peer: int, tag: int, sending: bool) -> Callable[[], MPI.Request]:
        """What posts a message each time it is called."""
        mpi = self.transport.mpi
        return partial(mpi.Isend if sending else mpi.Irecv, buffer, peer, tag)

    def _buffer(self, array: Any) -> tuple[Any, int, MPI.Datatype]:
        """The array as mpi4py takes it."""
        if self.datatype is None:
            return self.kind.as_bytes(array), array.nbytes, MPI.BYTE
        return array, len(array), self.datatype

    def copy(self, out: Any, array: Any) -> Any:
        return self.kind.copy(out, array)

    def scratch(self, like: Any, count: int) -> Any:
        memory, free = self.transport.take(self.kind, count * like.dtype.itemsize)
        if self.transport.poisons and not self.direct:  # a device would do it when messages are already there
            memory.fill(0xFF)
        self.scratches.append((memory, free))
        return self.kind.view(memory, count, like.dtype)

    def ended(self) -> None:
        """The call's scratch memory is the pool's again: nothing of the call is in flight any more."""
        for memory, free in self.scratches:
            free.append(memory)
        self.scratches.clear()
        self.job = None


def in_turn(call: LiveCall, generator: Iterator[Any], routes: Sequence[tuple[int, bool]]) -> Iterator[Any]:
    """A point-to-point call's generator, after those before it on its routes have posted: they arrive in that order."""
    transport, tag = call.transport, call.tag
    before = []
    for peer, sending in routes:
        route = peer, tag, sending
        earlier = transport.latest.get(route)
        if earlier and (not earlier.posted or transport.waiting.get(route)):
            before.append((earlier, route))
        transport.latest[route] = call
    return _in_turn(call, generator, before)


def _in_turn(call: LiveCall, generator: Iterator[Any], before: list[tuple[LiveCall, Route]]) -> Iterator[Any]:
    if before:
        yield _Turn(before)
    for items in generator:
        call.posted = call.posted or bool(call.made)
        yield items


class _Turn:
    """An event: all messages before on some routes are posted."""

    def __init__(self, before: list[tuple[LiveCall, Route]]) -> None:
        self.before = before

    def Test(self) -> bool:
        self.before = [
            (call, route)
            for call, route in self.before
            if not call.transport.broken and (not call.posted or call.transport.waiting.get(route))
        ]
        return not self.before
