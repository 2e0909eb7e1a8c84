"""Persistent plans: an algorithm recorded once, played as often as wanted.

What is recorded is a tree: a round is what was made, in the order of creation, and one list of rounds for each lane.
Playing it is again a generator, so the same drivers run it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import GeneratorType
from typing import Any

from mpi4py import MPI

from ..language import Algorithm
from .call import Job, LiveCall, Transport
from .engine import Handle
from .path import begin
from .staging import started


class RecordingCall(LiveCall):
    """A call in which nothing happens yet: messages become persistent requests, local work a function to call later."""

    __slots__ = ("nbytes", "requests")

    def __init__(self, transport: Transport, job: Job, block: int) -> None:
        self.requests: list[MPI.Prequest] = []  # all of them
        self.nbytes = 0  # sent by this rank each time it is played
        super().__init__(transport, job, block)

    def _work(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *arrays: self.made.append(partial(function, *arrays))

    def _message(self, array: Any, peer: int, number: int, sending: bool) -> Any:
        self.nbytes += array.nbytes if sending else 0
        tag = self.tag + number
        staged = self._stage(array, peer, tag, sending) if self.direct else None
        return staged or self._init(self._buffer(array), peer, tag, sending)

    def _init(self, buffer: Any, peer: int, tag: int, sending: bool) -> MPI.Prequest:
        mpi = self.transport.mpi
        request = (mpi.Send_init if sending else mpi.Recv_init)(buffer, peer, tag)
        self.requests.append(request)
        return request

    def _posting(self, buffer: Any, peer: int, tag: int, sending: bool) -> Callable[[], MPI.Request]:
        return partial(started, self._init(buffer, peer, tag, sending))

    def copy(self, out: Any, array: Any) -> None:
        self.made.append(partial(self.kind.copy, out, array))

    def ended(self) -> None:
        """Scratch and arrays stay the plan's until it is freed."""

    def free(self) -> None:
        """All requests and scratch memory are given back; nothing may be under way."""
        for request in self.requests:
            request.Free()
        super().ended()


class Round:
    """A recorded round: what to call to post it, in order; its messages, MPI's and staged; the rounds of its lanes."""

    __slots__ = ("actions", "lanes", "messages", "requests", "staged")

    def __init__(self, made: Sequence[Any], lanes: list[list[Round]]) -> None:
        self.messages = [entry for entry in made if type(entry) is tuple]
        self.requests = [message[0] for message in self.messages if isinstance(message[0], MPI.Request)]
        self.staged = [message[0] for message in self.messages if not isinstance(message[0], MPI.Request)]
        # one by one, in order: Startall's order is arbitrary, and messages between two ranks match in order
        self.actions = [entry[0].Start if type(entry) is tuple else entry for entry in made]
        self.lanes = lanes


def record(call: LiveCall, generator: Algorithm) -> list[Round]:
    """The rounds of `generator`, which makes its messages and local work through the recording `call`."""
    rounds = []
    for round_ in generator:
        made, call.made = call.made, []
        items = round_ if isinstance(round_, tuple) else (round_,)
        rounds.append(Round(made, [record(call, item) for item in items if isinstance(item, GeneratorType)]))
    return rounds


def play(call: LiveCall, rounds: Sequence[Round]) -> Iterator[Any]:
    """The recorded rounds happen: a generator for the usual drivers."""
    for round_ in rounds:
        events = None
        for action in round_.actions:
            event = action()
            if event is not None:  # local work under way on a device
                events = [*(events or ()), event]
        call.made = round_.messages
        if round_.lanes or round_.staged or events:
            lanes = (play(call, lane) for lane in round_.lanes)
            yield (*round_.requests, *round_.staged, *(events or ()), *lanes)
        else:
            yield round_.requests


class Plan(Handle):
    """A collective on fixed buffers, prepared once: `start` and `wait` as often as wanted, then `free`.

    Between start and wait the buffers belong to the collective; before the next start new data may be written to them.
    Plans are made, started and freed in the same order on every rank.

    Attributes:
        active: it was started, and neither `wait` nor `test` has said since that it has ended, well or not.
    """

    __slots__ = ("_call", "_release", "_rounds", "active")

    def __init__(self, call: RecordingCall, generator: Algorithm, result: Any, release: Callable[[], object]) -> None:
        self._call, self.result, self._release = call, result, release
        self._rounds: list[Round] | None = record(call, generator)
        self.active, self.done, self.error = False, True, None

    def start(self) -> None:
        """The collective is under way.

        Raises:
            RuntimeError: it already is, or the plan is freed, or the communicator broken.
        """
        call, transport = self._call, self._call.transport
        if self._rounds is None:
            raise RuntimeError(f"{call.name} plan: it is freed; make a new one with {call.name}_init")
        if self.active:
            raise RuntimeError(f"{call.name} plan: it was started already; wait for it before you start it again")
        transport.check(call.name)
        transport.bytes_sent += call.nbytes
        self.active = True
        self._launch(begin(call, play(call, self._rounds)))

    def test(self) -> bool:
        """Whether what was started has ended; everything in flight is driven once. Once true, `start` may follow."""
        self._check_active()
        try:
            return super().test()
        finally:
            self.active = not self.done

    def wait(self, timeout: float | None = None) -> Any:
        """The collective's result, as its blocking form returns it. Arguments and errors as Handle.wait."""
        self._check_active()
        try:
            return super().wait(timeout)
        finally:
            self.active = not self.done

    def _check_active(self) -> None:
        if not self.active:
            raise RuntimeError(f"{self._call.name} plan: it was not started")

    def free(self) -> None:
        """The plan's requests, scratch memory and tags are given back; once more does nothing.

        Raises:
            RuntimeError: it is under way.
        """
        if self.active:
            raise RuntimeError(f"{self._call.name} plan: it is under way; wait for it before you free it")
        if self._rounds is not None and self.error is None:  # after an error everything is kept, see path.KEPT
            self._rounds = None
            self._call.free()
            self._release()
