"""Everything nonblocking of this process: one engine, whatever the communicator, so that waiting on one drives all."""

import contextlib
import threading
import time

from .path import KEPT
from .wait import SPINS, Pause


class Engine:
    """All handles in flight, in the order of their starts.

    One lock, not re-entrant; `progress` only tries it, so it may be called from anywhere, also from inside a step.
    """

    def __init__(self):
        self.handles = []
        self.lock = threading.Lock()

    def start(self, handle):
        """The handle's first round is posted."""
        with self.lock:
            if not handle.advance():
                self.handles.append(handle)

    def progress(self):
        """Everything in flight has gone on as far as it can without waiting."""
        if self.handles and self.lock.acquire(blocking=False):
            try:
                ended = [handle for handle in self.handles if handle.advance()]
                if ended:
                    self.handles = [handle for handle in self.handles if not handle.done]
            finally:
                self.lock.release()


ENGINE = Engine()


def progress():
    """Everything nonblocking of this process has gone on as far as it can without waiting. Cheap when nothing flies."""
    ENGINE.progress()


class Handle:
    """A collective in flight. Keep the buffers as they are until `wait` has returned or `test` was true.

    Attributes:
        done: whether it has ended, well or not; only looks.
        ended_at: `time.perf_counter()` when the engine saw it end.
    """

    __slots__ = ("_path", "_result", "done", "ended_at", "error")

    def __init__(self, path, result):
        self._result = result
        self._launch(path)

    def _launch(self, path):
        self._path = path
        self.done, self.error, self.ended_at = False, None, None
        ENGINE.start(self)

    def advance(self):
        """Whether it has ended. The engine's: an error is kept for wait and test, whoever happens to pump."""
        path = self._path
        if self.done:
            return True
        try:
            if not path.advance():
                return False
            path.call.ended()
        except Exception as error:
            self._end(error)
        except BaseException as error:  # an interrupt: it belongs to whoever is running, too
            self._end(error)
            raise
        else:
            self._end(None)
        return True

    def _end(self, error):
        if error is not None:
            fail(self._path, error)
        self.error, self._path = error, None
        self.ended_at = time.perf_counter()
        self.done = True  # last: another thread may be looking

    def test(self):
        """Whether it has ended, after driving everything in flight once. Raises what went wrong inside."""
        ENGINE.progress()
        if self.error:
            raise self.error
        return self.done

    def wait(self, timeout=None):
        """The collective's result, as its blocking form returns it; everything in flight is driven meanwhile.

        Args:
            timeout: seconds; None: MPICOLL_TIMEOUT, by default for ever.

        Raises:
            Timeout: it has not ended in time; the handle lives on and can be waited for again.
        """
        self.settle(timeout)
        if self.error:
            raise self.error
        return self._result

    def settle(self, timeout=None):
        """It has ended, well or not."""
        path, polls, pause = self._path, 0, None
        while not self.done:
            ENGINE.progress()
            polls += 1
            if polls > SPINS and not self.done:
                pause = pause or Pause(path, timeout)
                pause()


def fail(path, error):
    """Nothing of the call is given back: its memory may still be written to. The communicator is marked broken."""
    KEPT.append(path)
    path.call.transport.broken = f"{path.call.name}: {error or type(error).__name__}"


def run(path):
    """The call has ended: the blocking driver. What else is in flight is driven meanwhile."""
    engine = ENGINE
    try:
        while path.step():
            polls, pause = 0, None
            while not path.complete():
                if engine.handles:
                    engine.progress()
                polls += 1
                if polls > SPINS:
                    pause = pause or Pause(path)
                    pause()
        path.call.ended()
    except BaseException as error:
        fail(path, error)
        raise


@contextlib.contextmanager
def thread(interval=0.5e-3):
    """Inside, a daemon thread drives everything in flight every `interval` seconds, beside long computations.

    MPI must have been initialised with MPI_THREAD_MULTIPLE, as mpi4py does where the MPI can.
    """
    stop = threading.Event()

    def pump():
        while not stop.wait(interval):
            ENGINE.progress()

    pumping = threading.Thread(target=pump, name="mpicoll progress", daemon=True)
    pumping.start()
    try:
        yield
    finally:
        stop.set()
        pumping.join()
