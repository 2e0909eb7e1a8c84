"""How to wait.

Nothing moves in MPI unless somebody calls it, so waiting is a loop over Testall. It polls, after some polls yields the
processor between them, after some 2,000 sleeps a little, so that 8 ranks on 2 cores do not starve each other. From then
on it also watches the deadline, and whether the ranks that it waits for are still there.
"""

from __future__ import annotations

import contextlib
import math
import os
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mpi4py import MPI

if TYPE_CHECKING:
    from .path import Path

SPINS = 200  # polls before the processor is given away; they cost nothing where every rank has a core of its own
FEW = 5  # the same where ranks share cores: whoever spins keeps the processor from the one that is waited for
YIELDS = 2000  # polls before sleeping
NAP = 50e-6  # s
LOOK = 0.5  # s between two looks at the peers


class Timeout(TimeoutError):
    """What was waited for has not come in time."""


class PeerLeft(RuntimeError):
    """A rank that is waited for has ended its program, or closed the communicator, or can use it no more."""


def _default_timeout() -> float:
    text = os.environ.get("MPICOLL_TIMEOUT", "600")
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not seconds >= 0:
        raise ValueError(f"MPICOLL_TIMEOUT is {text!r}; it is a number of seconds, or 0 for no limit")
    return seconds or math.inf


DEFAULT_TIMEOUT = _default_timeout()  # s
LONG: dict[int, Pause] = {}  # those that have lasted for a while, by thread: others may ask what is waited for
REPORT: list[Callable[[Path], str]] = []  # what tells more about a wait that is given up, if anything does


class Pause:
    """What a wait does between two polls once it has polled for some time without success.

    Args:
        path: what is waited for.
        timeout: seconds; None: MPICOLL_TIMEOUT.
        lock: held while looking into the path, if another thread may drive it.

    Attributes:
        words, peers: what is waited for, and the ranks that it comes from, as they were at the last look.
    """

    def __init__(
        self, path: Path, timeout: float | None = None, lock: contextlib.AbstractContextManager[Any] | None = None
    ) -> None:
        self.path, self.lock = path, lock or contextlib.nullcontext()
        self.timeout = DEFAULT_TIMEOUT if timeout is None else timeout
        self.patient = timeout is None  # each wait is bounded, not all of them together
        self.since = time.monotonic()
        self.polls = self.stage = 0
        self.look = LOOK
        self.gone: set[int] = set()
        self.words, self.peers = "", set[int]()

    def __call__(self) -> None:
        """Others have had the processor for a moment.

        Raises:
            Timeout: `timeout` seconds have passed since the first pause, or MPICOLL_TIMEOUT since it last went on.
            PeerLeft: a rank that `path` waits for has left, and its message is not among those that it sent before.
        """
        self.polls += 1
        if self.polls < YIELDS and self.patient:
            os.sched_yield()
            return
        if self.patient and self.stage != (stage := self.path.stage()):  # it goes on: this is another wait
            self.stage, self.polls, self.look, self.since = stage, 0, LOOK, time.monotonic()
            return
        waited = time.monotonic() - self.since
        if waited >= self.timeout:
            with self.lock:
                text = f"{self.path}, for {waited:.3g} s now"
                more = [report(self.path) for report in REPORT if self.patient]
            raise Timeout("\n".join([text, *more]))
        if waited >= self.look:
            self.look = waited + LOOK
            with self.lock, contextlib.suppress(MPI.Exception):  # of a rank that has died, the next poll tells
                self._look_for_peers()
        if self.polls < YIELDS:
            os.sched_yield()
        else:
            time.sleep(NAP)

    def end(self) -> None:
        """The wait is over."""
        LONG.pop(threading.get_ident(), None)

    def _look_for_peers(self) -> None:
        LONG[threading.get_ident()] = self
        self.words, self.peers = str(self.path), self.path.peers()
        gone = {peer for peer in self.peers if self.path.call.transport.has_left(peer)}
        for peer in gone:
            if peer in self.gone:  # seen twice, half a second apart: whatever it sent before has arrived
                name = self.path.call.transport.rank_name(peer)
                raise PeerLeft(f"{name} has ended its program or closed the communicator, but {self.words}")
        self.gone = gone
