"""Everything nonblocking of this process: one engine, whatever the communicator, so that waiting on one drives all."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from mpi4py import MPI

from .. import gpu
from .path import KEPT, Path
from .wait import DEFAULT_TIMEOUT, FEW, NAP, SPINS, Pause, PeerLeft, Timeout

if TYPE_CHECKING:
    from .transport import Transport


class Engine:
    """All handles in flight, in the order of their starts, and how often a wait polls before it gives way.

    One lock, not re-entrant; `progress` only tries it, so it may be called from anywhere, also from inside a step.
    """

    def __init__(self) -> None:
        self.handles: list[Handle] = []
        self.lock = threading.Lock()
        self.spins = SPINS

    def share_cores(self, ranks: int) -> None:
        """A wait gives way soon if so many ranks on this node are more than its cores: the others need them."""
        if ranks > (os.cpu_count() or 1):
            self.spins = FEW

    def start(self, handle: Handle) -> None:
        """The handle's first round is posted."""
        self.lock.acquire()  # not `with`, which takes three times as long
        try:
            if not handle.advance():
                self.handles.append(handle)
        finally:
            self.lock.release()

    def progress(self, polls: int = 1) -> None:
        """Everything in flight has gone on as far as it can without waiting; one alone is looked at `polls` times."""
        if self.handles and self.lock.acquire(False):
            try:
                handles = self.handles
                if len(handles) == 1:
                    if handles[0].advance(polls):
                        self.handles = []
                elif [handle for handle in handles if handle.advance()]:
                    self.handles = [handle for handle in handles if not handle.done]
            finally:
                self.lock.release()

    def give_up(self, handle: Handle, error: BaseException) -> None:
        """The handle has ended with this error, unless it has ended meanwhile."""
        with self.lock:
            if not handle.done:
                handle.end(error)
                self.handles.remove(handle)


ENGINE = Engine()


def progress() -> None:
    """Everything nonblocking of this process has gone on as far as it can without waiting. Cheap when nothing flies."""
    ENGINE.progress()


class Handle:
    """A collective in flight. Keep the buffers as they are until `wait` has returned or `test` was true.

    Attributes:
        done: whether it has ended, well or not; only looks.
        result: what `wait` returns; its content is the collective's only then.
        began_at: `time.perf_counter()` when the engine saw that what the caller had queued on a device before was done;
            None without a device, and before it has ended.
        ended_at: `time.perf_counter()` when the engine saw it end.
    """

    done: bool
    error: BaseException | None
    began_at: float | None
    ended_at: float | None
    _path: Path | None
    __slots__ = ("__weakref__", "_path", "began_at", "done", "ended_at", "error", "result")

    def __init__(self, path: Path, result: Any) -> None:
        self.result = result
        self._launch(path)

    def _launch(self, path: Path) -> None:
        self._path, self.done, self.error, self.began_at, self.ended_at = path, False, None, None, None
        ENGINE.start(self)

    def belongs_to(self, transport: Transport) -> bool:
        """Whether it is a call of this transport's communicator, and has not ended."""
        path = self._path
        return path is not None and path.call.transport is transport

    def advance(self, polls: int = 1) -> bool:
        """Whether it has ended, as Path.advance. The engine's: an error is kept for wait and test, whoever pumps."""
        path = self._path
        if path is None:
            return True
        try:
            if not path.advance(polls):
                return False
            path.call.ended()
        except Exception as error:
            self.end(error)
        except BaseException as error:  # an interrupt: it belongs to whoever is running, too
            self.end(error)
            raise
        else:
            self.began_at, self.ended_at = path.call.began_at, time.perf_counter()
            self.done = True  # another thread may be looking: what it reads then is set
            self._path = None
        return True

    def end(self, error: BaseException) -> None:
        """It has ended with this error; the engine's, under its lock."""
        if self._path is not None:
            self.began_at = self._path.call.began_at
            fail(self._path, error)
        self.error, self.ended_at = error, time.perf_counter()
        self.done = True
        self._path = None

    def watch(self, wrap: Callable[[Iterator[Any]], Iterator[Any]]) -> None:
        """From its next round on, unless it has ended, its rounds are what `wrap` makes of its generator."""
        with ENGINE.lock:
            if self._path:
                self._path.generator = wrap(self._path.generator)

    def test(self) -> bool:
        """Whether it has ended, after driving everything in flight once. Raises what went wrong inside."""
        ENGINE.progress()
        done = self.done
        if done and self.error:
            raise self.error
        return done

    def wait(self, timeout: float | None = None) -> Any:
        """The collective's result, as its blocking form returns it; everything in flight is driven meanwhile.

        Args:
            timeout: seconds; None: MPICOLL_TIMEOUT, by default 10 minutes.

        Raises:
            Timeout: it has not ended in time; the handle lives on and can be waited for again.
            PeerLeft: a rank that it waits for has ended its program; the collective cannot end.
        """
        self.settle(timeout)
        if self.error:
            raise self.error
        return self.result

    def settle(self, timeout: float | None = None) -> None:
        """It has ended, well or not."""
        path = self._path  # another thread may end the handle at any time
        if path is None:  # it has ended
            return
        polls, pause = ENGINE.spins, None
        try:
            while not self.done:
                ENGINE.progress(polls)
                if not self.done:
                    polls, pause = 1, pause or Pause(path, timeout, ENGINE.lock)
                    try:
                        pause()
                    except Timeout:
                        if not self.done:
                            raise
                    except PeerLeft as error:
                        ENGINE.give_up(self, error)
        finally:
            if pause:
                pause.end()


def fail(path: Path, error: BaseException) -> None:
    """Nothing of the call is given back: its memory may still be written to. The communicator is marked broken."""
    KEPT.append(path)
    path.call.transport.fail(path.call.name, error)


def run(path: Path) -> None:
    """The call has ended: the blocking driver. What else is in flight is driven meanwhile."""
    engine, pause = ENGINE, None
    try:
        while not path.advance(1 if pause else engine.spins):
            if engine.handles:
                engine.progress()
            pause = pause or Pause(path)
            pause()
        path.call.ended()
    except BaseException as error:
        fail(path, error)
        raise
    finally:
        if pause:
            pause.end()


def drive(requests: Sequence[MPI.Request], timeout: float | None = None) -> None:
    """All requests of MPI's own are complete, such as a duplicated communicator's; what is in flight moved meanwhile.

    Raises:
        Timeout: after `timeout` seconds, by default MPICOLL_TIMEOUT.
    """
    since = time.monotonic()
    timeout = DEFAULT_TIMEOUT if timeout is None else timeout
    while not MPI.Request.Testall(requests):
        ENGINE.progress()
        if time.monotonic() - since > timeout:
            raise Timeout(f"the other ranks have not come for {timeout:.3g} s")
        time.sleep(NAP)


@contextlib.contextmanager
def thread(interval: float = 0.5e-3) -> Iterator[None]:
    """Inside, a daemon thread drives everything in flight every `interval` seconds, beside long computations.

    Raises:
        RuntimeError: MPI was not initialised with MPI_THREAD_MULTIPLE, as mpi4py does where the MPI can.
    """
    if MPI.Query_thread() != MPI.THREAD_MULTIPLE:
        raise RuntimeError("progress.thread: MPI runs without MPI_THREAD_MULTIPLE, so only one thread may call it")
    stop, device = threading.Event(), gpu.current()

    def pump() -> None:
        gpu.use(device)  # also for MPI, which looks at the current one
        while not stop.wait(interval):
            ENGINE.progress()

    pumping = threading.Thread(target=pump, name="mpicoll progress", daemon=True)
    pumping.start()
    try:
        yield
    finally:
        stop.set()
        pumping.join()
