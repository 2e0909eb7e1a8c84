"""A collective under way on a real communicator, and what all collectives of one communicator share."""

from __future__ import annotations

import contextlib
import weakref
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from mpi4py import MPI

from ..arrays import DATATYPES, Event, Kind, Pinned
from ..language import NUMBERS, Call, Program
from .engine import ENGINE, Handle
from .path import KEPT, PeerDied
from .staging import WINDOW, Route, Staged

if TYPE_CHECKING:
    from .plan import Plan

# Longer messages are cut, so that counts always fit MPI's int, and the pieces of a staged message overlap. The limit is
# the same for all kinds of arrays: what one rank sends from a device another may receive in host memory. All pieces but
# the last are full, and the last is not: so if a rank sends more than another expects, a piece is too long for its
# receive, which is found, and does not wait for the next call. Whoever calls `recv` need not know the length, so only
# what is too long for MPI is cut there.
MESSAGE_LIMIT, POINT_TO_POINT_LIMIT = 4 << 20, 1 << 30  # bytes
About = tuple[str, Callable[..., Any] | None, int]
NONBLOCKING = 128  # blocks of tags for nonblocking calls: as many may be in flight on one communicator


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


class Transport:
    """What the calls of one communicator share, whatever collective they perform.

    Tags: path number n of a call has the tag 73 block + n. Block 0 is for blocking calls, blocks 1 to 128 for
    nonblocking ones in turn, the last one for point-to-point messages, those between for plans while they live.

    Attributes:
        mpi: the private mpi4py communicator.
        bytes_sent: bytes given to Isend so far, by this rank.
        calls, last: how many calls were started so far, and what the last of them were: (name, algorithm, bytes).
        poisons: scratch memory is all ones, NaN and -1, when a call gets it: for debugging.
        broken: None, or what went wrong: from then on nothing more is started.
        pool: free scratch memory, lists by kind of array and capacity. Fresh memory for each call made a 64 MiB ring
            several times slower: its pages are touched for the first time while the neighbours wait.
    """

    def __init__(self, mpi: MPI.Intracomm) -> None:
        self.mpi, self.rank, self.size = mpi, mpi.rank, mpi.size
        self.bytes_sent = 0
        self.poisons = False
        self.calls = 0
        self.last: deque[About] = deque(maxlen=16)
        self.broken: str | None = None
        self.goodbyes: list[MPI.Request] = []
        self.pool: dict[tuple[Kind | Pinned, int], list[Any]] = {}
        self.waiting: dict[Route, deque[Staged]] = defaultdict(deque)  # staged messages that are not posted yet
        self.latest: dict[Route, LiveCall] = {}  # of the point-to-point calls
        highest: Any = MPI.COMM_WORLD.Get_attr(MPI.TAG_UB)  # an int; Open MPI's duplicates may lack the attribute
        blocks = (highest + 1) // NUMBERS
        self.point_to_point = blocks - 1  # the block of send and recv, which have no lanes
        # Tags of that block, too: by which a rank takes its leave, asks another what it does, and is answered
        self.goodbye, self.question, self.answer = (NUMBERS * blocks - k for k in (1, 2, 3))
        self.plan_blocks = range(NONBLOCKING + 1, blocks - 1)
        self.plans: dict[int, Plan] = {}  # by block
        self.at_close: list[Callable[[], object]] = [self._free_plans]  # what gives back requests and memory
        self.recent: list[Callable[[], Handle | None]]  # weak references to the last user of each nonblocking block
        self.recent = [_ended] * NONBLOCKING
        self.started = 0

    def check(self, name: str) -> None:
        """Nothing, or a RuntimeError if the communicator cannot be used any more."""
        if self.broken:
            raise RuntimeError(f"{name}: this communicator cannot be used any more: {self.broken}")

    def fail(self, what: str, error: object) -> None:
        """The communicator is broken, by the first thing that went wrong; the others need not wait for this rank."""
        self.broken = self.broken or f"{what}: {str(error) or type(error).__name__}"
        if isinstance(error, PeerDied):
            self.mpi.Revoke()  # ends all waits on it, on all ranks
        else:
            KEPT.extend(self.say_goodbye())

    def say_goodbye(self) -> list[MPI.Request]:
        """Every other rank is told once, by an empty message, that this one is through; the requests of these."""
        if not self.goodbyes:
            others = [rank for rank in range(self.size) if rank != self.rank]
            for rank in others:
                with contextlib.suppress(MPI.Exception):  # it has died
                    self.goodbyes.append(self.mpi.Isend([bytearray(0), MPI.BYTE], rank, self.goodbye))
        return self.goodbyes

    def idle(self) -> bool:
        """Whether nothing nonblocking is under way."""
        if any(handle.belongs_to(self) for handle in list(ENGINE.handles)):
            return False
        return not any(plan.active for plan in self.plans.values())

    def next_block(self) -> int:
        """The block of the next nonblocking call; its previous user has ended."""
        slot = self.started % NONBLOCKING
        previous = self.recent[slot]()  # while it is under way the engine keeps it alive
        if previous:
            previous.settle()
        return slot + 1

    def in_flight(self, handle: Handle) -> None:
        """`handle` is noted as the user of the block that `next_block` gave."""
        self.recent[self.started % NONBLOCKING] = weakref.ref(handle)
        self.started += 1

    def plan_block(self, name: str) -> int:
        """The lowest block that no living plan uses: the same on every rank, as plans come and go in the same order."""
        for block in self.plan_blocks:
            if block not in self.plans:
                return block
        raise RuntimeError(f"{name}_init: all {len(self.plan_blocks)} plans of this communicator are in use; free some")

    def _free_plans(self) -> None:
        for plan in list(self.plans.values()):
            plan.free()

    def take(self, kind: Kind | Pinned, nbytes: int) -> tuple[Any, list[Any]]:
        """Scratch memory for `nbytes` bytes, and the list to which it is to be given back."""
        capacity = 1 << max(nbytes - 1, 255).bit_length()  # by powers of two: few different ones
        free = self.pool.setdefault((kind, capacity), [])
        try:
            return free.pop(), free
        except IndexError:
            return kind.memory(capacity), free

    def begin(self) -> None:
        """What was sent to set the communicator up does not count."""
        self.bytes_sent = self.calls = 0
        self.last.clear()

    def note(self, about: About) -> None:
        """A call is started; what the last ones were is told when somebody waits for too long."""
        self.calls += 1
        self.last.append(about)

    def has_left(self, peer: int) -> bool:
        """Whether the rank `peer` has ended its program or closed the communicator."""
        return self.mpi.Iprobe(peer, self.goodbye)

    def rank_name(self, rank: int) -> str:
        """The rank in words, with its number in the world where that is another."""
        world = self.world_rank(rank)
        return f"rank {world}" if world == rank else f"rank {rank} (rank {world} of the world)"

    def world_rank(self, rank: int) -> int:
        """The number of a rank of this communicator in the world."""
        (world,) = self.mpi.group.Translate_ranks([rank], MPI.COMM_WORLD.group)
        return int(world)


def _ended() -> None:
    """What a weak reference to a handle gives when there is none."""


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
        if self.transport.poisons:
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
