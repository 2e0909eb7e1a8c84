"""One generator under way: post the next round, see whether it is complete."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterator, Sequence
from types import GeneratorType
from typing import TYPE_CHECKING, Any

from mpi4py import MPI

if TYPE_CHECKING:
    from .call import LiveCall

_END = object()

# What failed with messages in flight, and what was never waited for: memory given back under an active receive would
# corrupt another array. MPI ends after the interpreter has cleared its modules, so the list itself must outlive them.
KEPT: list[object] = []
ctypes.pythonapi.Py_IncRef(ctypes.py_object(KEPT))


class CollectiveError(RuntimeError):
    """A message of a collective failed; the communicator cannot be used any more."""


class PeerDied(CollectiveError):
    """A rank of the communicator has died, or another one has found that: only where the MPI tolerates faults."""


# Classes of errors; an MPI that does not know them has unknown ones in their place.
DEAD = {MPI.ERR_PROC_FAILED, MPI.ERR_PROC_FAILED_PENDING, MPI.ERR_REVOKED} - {MPI.ERR_UNKNOWN}


def begin(call: LiveCall, generator: Iterator[Any]) -> Path:
    """The path of a call's generator, which takes its first step when what the caller has queued is done."""
    event = call.job and call.job.ready()
    return Path(call, generator if event is None else _after(event, call, generator))


def _after(event: Any, call: LiveCall, generator: Iterator[Any]) -> Iterator[Any]:
    yield event
    call.began_at = time.perf_counter()
    yield from generator


class Path:
    """A generator, and what its current round still waits for: requests, events (staged messages too), lanes."""

    made: Sequence[Any]
    requests: list[Any]
    events: Sequence[Any]
    lanes: Sequence[Path]
    __slots__ = ("call", "events", "generator", "lanes", "made", "requests", "rounds")

    def __init__(self, call: LiveCall, generator: Iterator[Any]) -> None:
        self.call, self.generator = call, generator
        self.made = self.events = self.lanes = ()
        self.requests = []
        self.rounds = 0

    def advance(self, polls: int = 1) -> bool:
        """Whether all has ended, after going on as far as possible; what is not there yet is looked at `polls` times.

        Requests are tested one after the other: cheaper than all at once, and an error is the request's own.
        """
        status = self.call.status
        try:
            while True:
                requests, looks = self.requests, polls
                while requests or self.events or self.lanes:
                    while requests and requests[-1].Test(status):
                        requests.pop()
                    if self.events:
                        self.events = [event for event in self.events if not event.Test()]
                    if self.lanes:
                        self.lanes = [lane for lane in self.lanes if not lane.advance()]
                    looks -= 1
                    if looks <= 0 and (requests or self.events or self.lanes):
                        return False
                if not self._step():
                    return True
        except MPI.Exception as error:
            raise self._explained(error) from None

    def stage(self) -> int:
        """A number that changes when it goes on."""
        return self.rounds + sum(lane.stage() for lane in self.lanes)

    def _step(self) -> bool:
        """The next round is posted; False if there is none, the generator has ended."""
        call = self.call
        if call.span is None:
            items = next(self.generator, _END)
        else:
            with call.span(f"{call.name} round {self.rounds}"):
                items = next(self.generator, _END)
        if items is _END:
            return False
        self.made, call.made = call.made, []
        self._sort(items)
        self.requests.reverse()  # the first is looked at first
        if self.made:
            self.rounds += 1
        return True

    def _sort(self, items: Any) -> None:
        for item in items if type(items) is tuple else (items,):
            if item is None:
                continue
            if isinstance(item, MPI.Request):
                self.requests.append(item)
            elif type(item) is GeneratorType:
                self.lanes = [*self.lanes, Path(self.call, item)]
            elif type(item) is tuple:  # the parts of a long message
                self._sort(item)
            else:
                self.events = [*self.events, item]

    def __str__(self) -> str:
        """What is waited for, in words."""
        name = self.call.transport.rank_name
        pending = "; ".join(
            f"round {path.rounds - 1}: {'to' if sending else 'for'} {name(peer)}, {array.nbytes} bytes"
            for path, array, peer, sending in self._pending()
        )
        if not pending:
            pending = (
                f"after round {self.rounds - 1}" if self.rounds else "for what was to be done before its first round"
            )
        return f"rank {self.call.comm.rank} waits in {self.call.name} ({pending})"

    def peers(self) -> set[int]:
        """The ranks that are waited for."""
        return {peer for _, _, peer, _ in self._pending()}

    def _tested(self) -> Any:
        """The request that is tested next."""
        return self.requests[-1] if self.requests else None

    def _pending(self) -> list[tuple[Path, Any, int, bool]]:
        own = self.made if self.requests or self.events else ()
        found = [(self, array, peer, sending) for request, array, peer, sending in own if not request.Get_status()]
        for lane in self.lanes:
            found += lane._pending()
        return found

    def _explained(self, error: MPI.Exception) -> CollectiveError:
        where = f"{self.call.name}: round {self.rounds - 1} on rank {self.call.comm.rank}"
        if error.Get_error_class() in DEAD:
            return PeerDied(f"{where}: a rank of its communicator has died ({error})")
        own, failed = self.call.status, self._tested()
        for request, array, peer, sending in self.made:
            if request is not failed and isinstance(request, MPI.Request):
                continue
            status = own if request is failed else request.status
            if status and not sending and (request is failed or status.Get_error()):
                sent = status.Get_count(MPI.BYTE)  # MPICH counts only what fits, and says the rest in its text, or not
                return CollectiveError(
                    f"{where}: rank {peer} sent {sent if sent > array.nbytes else 'more'} bytes, {array.nbytes} were "
                    f"expected; do all ranks pass the same counts and dtypes? ({error})"
                )
        return CollectiveError(f"{where}: {error}")
