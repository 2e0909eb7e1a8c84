"""What the calls of one communicator share: tags, scratch memory, and what was sent and started."""

from __future__ import annotations

import contextlib
import weakref
from collections import defaultdict, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mpi4py import MPI

from ..arrays import Kind, Pinned
from ..language import NUMBERS
from .engine import ENGINE, Handle
from .path import KEPT, PeerDied
from .staging import Route, Staged

if TYPE_CHECKING:
    from .call import LiveCall
    from .plan import Plan

About = tuple[str, Callable[..., Any] | None, int]
NONBLOCKING = 128  # blocks of tags for nonblocking calls: as many may be in flight on one communicator


class Transport:
    """What the calls of one communicator share, whatever collective they perform.

    Tags: path number n of a call has the tag 73 block + n. Block 0 is for blocking calls, blocks 1 to 128 for
    nonblocking ones in turn, the last one for point-to-point messages, those between for plans while they live.

    Attributes:
        mpi: the private mpi4py communicator.
        bytes_sent: bytes given to Isend so far, by this rank.
        calls, last: how many calls were started so far, and what the last of them were: (name, algorithm, bytes).
        poisons: scratch memory on the host is all ones, NaN and -1, when a call gets it: for debugging.
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
