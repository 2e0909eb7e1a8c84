"""Blocking calls that come again with the same arrays are played from a plan.

Slicing, checking and choosing cost more than the messages of a small call. Iterative programs call with the same arrays
over and over, so the second time a plan is recorded, and from then on the call only starts its requests. It uses the
blocking calls' tags, so a rank that replays matches one that does not. A replay keeps its arrays alive; there are few.
"""

import weakref

from .engine import run
from .path import Path
from .plan import RecordingCall, play, record

LIMIT = 256 * 1024  # bytes; above, what is saved is lost among the messages
KEEP = 16  # replays of one communicator; the oldest goes first


class Replay:
    """A blocking call recorded with its arrays."""

    __slots__ = ("arrays", "busy", "call", "dtype", "path", "result", "rounds")

    def __init__(self, transport, job, arrays):
        self.arrays, self.dtype, self.result = arrays, job.dtype, job.result
        self.call = RecordingCall(transport, job, 0)
        self.rounds = record(self.call, job.program(self.call.comm, self.call.op))
        self.busy = False

    def run(self):
        """The call's result."""
        self.busy = True  # until it has ended without error
        self.call.transport.bytes_sent += self.call.nbytes
        run(Path(self.call, play(self.call, self.rounds)))
        self.busy = False
        return self.result


class Replays:
    """The replays of a communicator, by the call's name, its arrays' identity and its other arguments."""

    def __init__(self, transport):
        self._transport = transport
        self._known, self._seen = {}, {}

    def find(self, key, array):
        """The replay for this call, if there is one and it can be used now."""
        replay = self._known.get(key)
        # the arrays are alive, so their identity is theirs; but somebody may have set a new dtype
        if replay and not replay.busy and (array is None or array.dtype is replay.dtype):
            return replay
        return None

    def note(self, key, arrays, job):
        """The call is remembered, or recorded if it was seen before with these very arrays; then its replay."""
        if job.nbytes > LIMIT or not (job.result is None or any(job.result is array for array in arrays)):
            return None
        seen = self._seen.pop(key, None)
        if seen is None or any(ref() is not array for ref, array in zip(seen, arrays, strict=True)):
            if len(self._seen) >= KEEP:
                self._seen.pop(next(iter(self._seen)))
            self._seen[key] = [weakref.ref(array) if array is not None else _none for array in arrays]
            return None
        if key in self._known or len(self._known) >= KEEP:
            self._forget(key if key in self._known else next(iter(self._known)))
        replay = self._known[key] = Replay(self._transport, job, arrays)
        return replay

    def clear(self):
        """All requests and scratch memory of replays are given back."""
        for key in list(self._known):
            self._forget(key)

    def _forget(self, key):
        if not self._known[key].busy:
            self._known.pop(key).call.free()


def _none():
    return None
