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

_testall = MPI.Request.Testall
_END = object()

# What failed with messages in flight, and what was never waited for: memory given back under an active receive would
# corrupt another array. MPI ends after the interpreter has cleared its modules, so the list itself must outlive them.
KEPT: list[object] = []
ctypes.pythonapi.Py_IncRef(ctypes.py_object(KEPT))


class CollectiveError(RuntimeError):
    """A message of a collective failed; the communicator cannot be used any more."""


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
    requests: list[MPI.Request]
    events: Sequence[Any]
    lanes: Sequence[Path]
    __slots__ = ("call", "events", "generator", "lanes", "made", "requests", "rounds")

    def __init__(self, call: LiveCall, generator: Iterator[Any]) -> None:
        self.call, self.generator = call, generator
        self.made = self.events = self.lanes = ()
        self.requests = []
        self.rounds = 0

    def step(self) -> bool:
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
        if type(items) is list:  # a plan's round, sorted when it was recorded: requests only
            self.requests = items
        else:
            self.requests = []
            self._sort(items)
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

    def complete(self) -> bool:
        """Whether the round is complete; lanes go on as far as they can."""
        try:
            if self.requests and _testall(self.requests, self.call.statuses):
                self.requests = []
            if self.events:
                self.events = [event for event in self.events if not event.Test()]
        except MPI.Exception as error:
            raise self._explained(error) from None
        if self.lanes:
            self.lanes = [lane for lane in self.lanes if not lane.advance()]
        return not (self.requests or self.events or self.lanes)

    def advance(self) -> bool:
        """Whether the generator has ended, after going on as far as possible without waiting."""
        while self.complete():
            if not self.step():
                return True
        return False

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

    def peers_gone(self) -> set[int]:
        """The ranks whose messages are waited for, but who have left."""
        return {peer for _, _, peer, _ in self._pending() if self.call.transport.has_left(peer)}

    def _pending(self) -> list[tuple[Path, Any, int, bool]]:
        own = self.made if self.requests or self.events else ()
        found = [(self, array, peer, sending) for request, array, peer, sending in own if not request.Get_status()]
        for lane in self.lanes:
            found += lane._pending()
        return found

    def _explained(self, error: MPI.Exception) -> CollectiveError:
        where = f"{self.call.name}: round {self.rounds - 1} on rank {self.call.comm.rank}"
        statuses = iter(self.call.statuses)  # Testall's, of the requests
        for request, array, peer, sending in self.made:
            status = next(statuses, None) if isinstance(request, MPI.Request) else request.status
            if status and status.Get_error() and not sending:
                sent = status.Get_count(MPI.BYTE)  # MPICH counts only what fits, and says the rest in its text, or not
                return CollectiveError(
                    f"{where}: rank {peer} sent {sent if sent > array.nbytes else 'more'} bytes, {array.nbytes} were "
                    f"expected; do all ranks pass the same counts and dtypes? "
                    f"({MPI.Get_error_string(status.Get_error())})"
                )
        return CollectiveError(f"{where}: {error}")
