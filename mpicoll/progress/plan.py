"""Persistent plans: an algorithm recorded once, played as often as wanted.

What is recorded is a tree: a round is what was made, in the order of creation, and one list of rounds for each lane.
Playing it is again a generator, so the same drivers run it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import GeneratorType
from typing import Any

from mpi4py import MPI

from ..arrays import NumPyArrays
from ..language import Algorithm
from .call import Job, LiveCall
from .engine import ENGINE, Handle
from .path import Path, begin
from .staging import started
from .transport import Transport


class RecordingCall(LiveCall):
    """A call in which nothing happens yet: messages become persistent requests, local work a function to call later."""

    __slots__ = ("nbytes", "requests")

    def __init__(self, transport: Transport, job: Job, block: int) -> None:
        self.requests: list[MPI.Prequest] = []  # all of them
        self.nbytes = 0  # sent by this rank each time it is played
        super().__init__(transport, job, block)

    def _work(self, function: Callable[..., Any]) -> Callable[..., Any]:
        on = getattr(function, "on", None) or partial(partial, function)
        return lambda *arrays: self.made.append(on(*arrays))

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
        self.actions: list[Callable[[], Any]] = []
        for is_message, entries in itertools.groupby(made, lambda entry: type(entry) is tuple):
            if is_message:
                # One by one: Startall's order is arbitrary, and messages from one rank to another match in order. What
                # arrives at a posted receive need not wait there.
                self.actions += [entry[0].Start for entry in sorted(entries, key=lambda entry: entry[3])]
            else:
                self.actions += entries
        self.lanes = lanes


def record(call: LiveCall, generator: Algorithm) -> list[Round]:
    """The rounds of `generator`, which makes its messages and local work through the recording `call`."""
    rounds = []
    for round_ in generator:
        made, call.made = call.made, []
        items = round_ if isinstance(round_, tuple) else (round_,)
        rounds.append(Round(made, [record(call, item) for item in items if isinstance(item, GeneratorType)]))
    return rounds


def path_of(call: LiveCall, rounds: Sequence[Round]) -> Callable[[], Path]:
    """What gives the path of recorded rounds each time they are played."""
    at_once = call.job is not None and call.job.ready is NumPyArrays.ready  # nobody's work is to be waited for
    if not at_once or any(round_.lanes for round_ in rounds):
        return lambda: begin(call, _play(call, rounds))
    played = Played(call, rounds)
    return lambda: played


def _play(call: LiveCall, rounds: Sequence[Round]) -> Iterator[Any]:
    """The recorded rounds happen: a generator for the usual drivers."""
    at_once = call.kind is NumPyArrays  # whatever the local work returns is no event
    for round_ in rounds:
        events = [event for action in round_.actions if (event := action()) is not None and not at_once]
        call.made = round_.messages
        lanes = (_play(call, lane) for lane in round_.lanes)
        yield (*round_.requests, *round_.staged, *events, *lanes)


class Played(Path):
    """The path of recorded rounds on the host and without lanes: no generator, as this loop is what a small call costs.

    At its end it is at its start again. Its `requests` are the methods that test them. Work of rounds without messages
    is done with the next round that has some.
    """

    __slots__ = ("_last", "_steps")

    def __init__(self, call: LiveCall, rounds: Sequence[Round]) -> None:
        super().__init__(call, iter(()))
        self._steps, actions = [], []
        for round_ in rounds:
            actions += round_.actions
            if round_.messages:
                tests = [request.Test for request in reversed(round_.requests)]
                self._steps.append((actions, tests, round_.messages))
                actions = []
        self._last = actions

    def advance(self, polls: int = 1) -> bool:
        tests, status, steps, tries = self.requests, self.call.status, self._steps, polls
        try:
            while True:
                while tests:
                    if tests[-1](status):
                        tests.pop()
                    elif (tries := tries - 1) <= 0:
                        return False
                if self.rounds == len(steps):
                    break
                actions, tests, self.made = steps[self.rounds]
                self.rounds += 1
                self.requests = tests = tests[:]
                for action in actions:
                    action()
                tries = polls
        except MPI.Exception as error:
            raise self._explained(error) from None
        for action in self._last:
            action()
        self.rounds = 0
        return True

    def _tested(self) -> Any:
        return self.requests[-1].__self__ if self.requests else None


class Plan(Handle):
    """A collective on fixed buffers, prepared once: `start` and `wait` as often as wanted, then `free`.

    Between start and wait the buffers belong to the collective; before the next start new data may be written to them.
    Plans are made, started and freed in the same order on every rank.

    Attributes:
        active: it was started, and neither `wait` nor `test` has said since that it has ended, well or not.
    """

    __slots__ = ("_again", "_call", "_release", "active")

    def __init__(self, call: RecordingCall, generator: Algorithm, result: Any, release: Callable[[], object]) -> None:
        self._call, self.result, self._release = call, result, release
        self._again: Callable[[], Path] | None = path_of(call, record(call, generator))
        self.active, self.done, self.error, self.ended_at, self._path = False, True, None, None, None

    def start(self) -> None:
        """The collective is under way.

        Raises:
            RuntimeError: it already is, or the plan is freed, or the communicator broken.
        """
        call, transport, again = self._call, self._call.transport, self._again
        if again is None:
            raise RuntimeError(f"{call.name} plan: it is freed; make a new one with {call.name}_init")
        if self.active:
            raise RuntimeError(f"{call.name} plan: it was started already; wait for it before you start it again")
        if transport.broken:
            transport.check(call.name)
        transport.bytes_sent += call.nbytes
        transport.note(call.about)
        self.active, self.done, self.error, self._path = True, False, None, again()
        ENGINE.start(self)

    def test(self) -> bool:
        """Whether what was started last has ended; all in flight is driven once. Once true, `start` may follow."""
        self._check_started()
        try:
            return super().test()
        finally:
            self.active = not self.done

    def wait(self, timeout: float | None = None) -> Any:
        """The result of what was started last, as the blocking form returns it. Arguments and errors as Handle.wait."""
        if not self.active:
            self._check_started()
        ENGINE.progress(ENGINE.spins)
        try:
            if not self.done:
                self.settle(timeout)
        finally:
            self.active = not self.done
        if self.error:
            raise self.error
        return self.result

    def _check_started(self) -> None:
        if self._path is None and self.ended_at is None:
            raise RuntimeError(f"{self._call.name} plan: it was not started")

    def free(self) -> None:
        """The plan's requests, scratch memory and tags are given back; once more does nothing.

        Raises:
            RuntimeError: it is under way.
        """
        if self.active:
            raise RuntimeError(f"{self._call.name} plan: it is under way; wait for it before you free it")
        if self._again is not None and self.error is None:  # after an error everything is kept, see path.KEPT
            self._again = None
            self._call.free()
            self._release()
