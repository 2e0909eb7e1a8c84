"""Blocking calls that come again with the same arrays are played from a plan.

Slicing, checking and choosing cost more than the messages of a small call, and much beside those of a long one.
Iterative programs call with the same arrays over and over, so the second time a plan is recorded, and from then on the
call only starts its requests. It uses the blocking calls' tags, so a rank that replays matches one that does not. A
replay knows where its arrays are and does not keep them alive; NumPy does not resize an array with a weak reference.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from .call import Job
from .engine import run
from .path import KEPT
from .plan import RecordingCall, path_of, record
from .transport import Transport

LASTING = (np.ndarray, np.memmap)  # arrays that keep their memory; on devices, little of the whole would be saved
KEEP = 16  # replays of one communicator; the oldest goes first
SCRATCH = 64 << 20  # bytes of scratch memory that they may hold together


class Replay:
    """A blocking call recorded with its arrays.

    Args:
        arrays: those that the caller passed; None where there is none.
        make: the job for other arrays.
        result: which of the arrays is the call's result, by number, or None.
    """

    __slots__ = ("again", "busy", "call", "looks", "result", "scratch")

    def __init__(
        self, transport: Transport, arrays: Sequence[Any], make: Callable[..., Job], result: int | None
    ) -> None:
        ghosts = {id(array): None if array is None else _ghost(array) for array in arrays}
        different = {id(array): array for array in arrays if array is not None}.values()
        self.looks = [(weakref.ref(array), array.dtype, array.shape, array.flags.writeable) for array in different]
        self.result = result
        job = make(*(ghosts[id(array)] for array in arrays))
        self.call = RecordingCall(transport, job, 0)
        self.again = path_of(self.call, record(self.call, job.program(self.call.comm, self.call.op)))
        self.scratch = sum(len(memory) for memory, _ in self.call.scratches)
        self.busy = False

    def usable(self) -> bool:
        """Whether the call can be played now: no other thread does, and the arrays still look as they were checked."""
        if self.busy or self.call.transport.broken:
            return False
        for ref, dtype, shape, writeable in self.looks:
            array = ref()
            if array is None or array.dtype is not dtype or array.shape != shape or array.flags.writeable != writeable:
                return False
        return True

    def run(self) -> None:
        """The call has been made."""
        self.busy = True  # until it has ended without error
        transport = self.call.transport
        transport.bytes_sent += self.call.nbytes
        transport.note(self.call.about)
        run(self.again())
        self.busy = False


def _ghost(array: NDArray[Any]) -> NDArray[Any]:
    """An array of the same memory that does not keep it."""
    memory: Any = MPI.buffer.fromaddress(array.ctypes.data, array.nbytes, not array.flags.writeable)
    flat = np.frombuffer(memory, np.uint8) if array.nbytes else np.empty(0, np.uint8)
    return flat.view(array.dtype).reshape(array.shape)


class Replays:
    """The replays of a communicator.

    Attributes:
        known: they, by the call's name, its arrays' identity and its other arguments.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.known: dict[Hashable, Replay] = {}
        self._seen: dict[Hashable, list[weakref.ref[Any]]] = {}

    def note(self, key: Hashable, arrays: Sequence[Any], make: Callable[..., Job], job: Job) -> Replay | None:
        """The call is remembered, or recorded if it was seen before with these very arrays; then its replay."""
        there = [array for array in arrays if array is not None]
        result = next((i for i, array in enumerate(arrays) if array is job.result), None)
        if any(type(array) not in LASTING for array in there) or (result is None and job.result is not None):
            return None
        seen = self._seen.pop(key, None)
        if seen is None or any(ref() is not array for ref, array in zip(seen, there, strict=True)):
            if len(self._seen) >= KEEP:
                self._seen.pop(next(iter(self._seen)))
            self._seen[key] = [weakref.ref(array) for array in there]
            return None
        if key in self.known:
            self._forget(key)
        replay = Replay(self._transport, arrays, make, result)
        if replay.scratch > SCRATCH:
            replay.call.free()
            return None
        while self.known and (
            len(self.known) >= KEEP or replay.scratch + sum(old.scratch for old in self.known.values()) > SCRATCH
        ):
            self._forget(next(iter(self.known)))
        self.known[key] = replay
        return replay

    def clear(self) -> None:
        """All requests and scratch memory of replays are given back."""
        for key in list(self.known):
            self._forget(key)

    def _forget(self, key: Hashable) -> None:
        replay = self.known.pop(key)
        if replay.busy:
            KEPT.append(replay)  # another thread is playing it, or it failed
        else:
            replay.call.free()
