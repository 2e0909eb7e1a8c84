"""Blocking calls that come again with the same arrays are played from a plan.

Slicing, checking and choosing cost more than the messages of a small call. Iterative programs call with the same arrays
over and over, so the second time a plan is recorded, and from then on the call only starts its requests. It uses the
blocking calls' tags, so a rank that replays matches one that does not. A replay keeps its arrays alive, and while they
are referenced so NumPy does not resize them; there are few.
"""

from __future__ import annotations

import weakref
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from .call import Job, Transport
from .engine import run
from .path import KEPT, begin
from .plan import RecordingCall, play, record

LIMIT = 256 * 1024  # bytes; above, what is saved is lost among the messages
LASTING = (np.ndarray, np.memmap)  # arrays that keep their memory; on devices, little of the whole would be saved
KEEP = 16  # replays of one communicator; the oldest goes first


class Replay:
    """A blocking call recorded with its arrays."""

    __slots__ = ("busy", "call", "looks", "result", "rounds")

    def __init__(self, transport: Transport, job: Job, arrays: Sequence[Any]) -> None:
        self.result = job.result
        self.looks = [(array, array.dtype, array.shape, array.flags.writeable) for array in arrays]
        self.call = RecordingCall(transport, job, 0)
        self.rounds = record(self.call, job.program(self.call.comm, self.call.op))
        self.busy = False

    def usable(self) -> bool:
        """Whether the call can be played now: no other thread does, and the arrays still look as they were checked."""
        if self.busy or self.call.transport.broken:
            return False
        for array, dtype, shape, writeable in self.looks:
            if array.dtype is not dtype or array.shape != shape or array.flags.writeable != writeable:
                return False
        return True

    def run(self) -> Any:
        """The call's result."""
        self.busy = True  # until it has ended without error
        self.call.transport.bytes_sent += self.call.nbytes
        run(begin(self.call, play(self.call, self.rounds)))
        self.busy = False
        return self.result


class Replays:
    """The replays of a communicator, by the call's name, its arrays' identity and its other arguments."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._known: dict[Hashable, Replay] = {}
        self._seen: dict[Hashable, list[weakref.ref[Any]]] = {}

    def find(self, key: Hashable) -> Replay | None:
        """The replay for this call, if there is one and it can be used now."""
        replay = self._known.get(key)
        return replay if replay and replay.usable() else None

    def note(self, key: Hashable, first: Any, second: Any, job: Job) -> Replay | None:
        """The call is remembered, or recorded if it was seen before with these very arrays; then its replay."""
        if job.nbytes > LIMIT or not (job.result is None or job.result is first or job.result is second):
            return None
        arrays = [array for array in (first, second) if array is not None]
        if any(type(array) not in LASTING for array in arrays):
            return None
        seen = self._seen.pop(key, None)
        if seen is None or any(ref() is not array for ref, array in zip(seen, arrays, strict=True)):
            if len(self._seen) >= KEEP:
                self._seen.pop(next(iter(self._seen)))
            self._seen[key] = [weakref.ref(array) for array in arrays]
            return None
        if key in self._known or len(self._known) >= KEEP:
            self._forget(key if key in self._known else next(iter(self._known)))
        replay = self._known[key] = Replay(self._transport, job, arrays)
        return replay

    def clear(self) -> None:
        """All requests and scratch memory of replays are given back."""
        for key in list(self._known):
            self._forget(key)

    def _forget(self, key: Hashable) -> None:
        replay = self._known.pop(key)
        if replay.busy:
            KEPT.append(replay)  # another thread is playing it, or it failed
        else:
            replay.call.free()
