"""Which gradients are sent together, and in what memory."""

from typing import Any, NamedTuple

import numpy as np

MIB = 1 << 20


class Wait(NamedTuple):
    """A call of an exchange that `finish` has waited for.

    Attributes:
        handle: of the call, which has ended.
        start: when it was started (`time.perf_counter()`).
        since, until: when `finish` had nothing else to wait for, from the device or before, and when it went on.
    """

    handle: Any
    start: float
    since: float
    until: float


class Bucket:
    """Some parameters whose gradients are sent together.

    Attributes:
        flat: the gradients, one after another, zero at first.
        views: every parameter with its part of `flat`, in the parameter's shape, in the order of their places.
        pending: gradients that are not ready yet in this step.
        steps, handle, launched_at: of the exchange under way: its generator, what it waits for, and since when
            (`time.perf_counter()`).
        ready_at: when the last gradient became ready in this step (`time.perf_counter()`).
        waits: a Wait for each call of the last exchange that has ended.
        kept: what an exchange keeps with the bucket from step to step; None at first.
    """

    __slots__ = ("flat", "handle", "kept", "launched_at", "pending", "ready_at", "steps", "views", "waits")

    def __init__(self, parameters):
        self.pending = len(parameters)
        self.steps = self.handle = self.launched_at = self.ready_at = self.kept = None
        self.waits = []
        self.flat = np.zeros_like(parameters[0].data, shape=(sum(p.data.size for p in parameters),))
        self.views, offset = [], 0
        for p in parameters:
            self.views.append((p, self.flat[offset : offset + p.data.size].reshape(p.data.shape)))
            offset += p.data.size

    @property
    def waited_s(self):
        """Seconds that `finish` waited for this bucket, after those before it."""
        return sum(wait.until - wait.since for wait in self.waits)


def assign(parameters, bucket_cap_mb=25, first_bucket_mb=1, last_bucket_mb=1):
    """The parameters in reverse order, cut into lists, one per bucket.

    A list is closed before it would exceed its cap in MiB (the first list has its own: communication starts early) and
    where the dtype changes; a parameter above the cap has a bucket of its own. The end of the last list that fits into
    `last_bucket_mb` is cut off: when backward has ended, only that much is still to be sent.
    """
    lists, room = [], 0
    for p in reversed(parameters):
        if not lists or p.data.nbytes > room or p.data.dtype != lists[-1][0].data.dtype:
            room = min(first_bucket_mb, bucket_cap_mb) * MIB if not lists else bucket_cap_mb * MIB
            lists.append([])
        lists[-1].append(p)
        room -= p.data.nbytes
    if lists:
        tail, room = [], last_bucket_mb * MIB
        while lists[-1] and lists[-1][-1].data.nbytes <= room:
            tail.insert(0, lists[-1].pop())
            room -= tail[0].data.nbytes
        lists = [part for part in (*lists, tail) if part]
    return lists
