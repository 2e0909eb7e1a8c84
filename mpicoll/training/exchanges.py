"""What is done with a full bucket: exchanges between the ranks, which the reducer starts and waits for.

An exchange is called as `exchange(comm, bucket)` and is, like an algorithm, a generator that yields where it would
wait: a handle, complete when the next line runs. The reducer takes the first step when the bucket is launched, while
backward goes on, and the others in `finish`: always in the order of the buckets, so that all ranks start the same calls
in the same order. When it ends, `bucket.flat` holds the result.

Attributes of an exchange:
    name: of what `finish` waits for, in profilers.
    bytes_sent(comm, buckets): by this rank in a step, by the closed forms of `cost`.
"""

import time

from .buckets import Wait


class AllReduce:
    """Averages, on every rank; `algorithm` forces one, None lets each bucket's size choose."""

    name = "all-reduce"

    def __init__(self, algorithm=None):
        self.algorithm = algorithm

    def __call__(self, comm, bucket):
        yield comm.iallreduce(bucket.flat, bucket.flat, op="avg", algorithm=self.algorithm)

    def bytes_sent(self, comm, buckets):
        return sum(formula(comm, "allreduce", b.flat, self.algorithm) for b in buckets)


class Nothing:
    """Every rank keeps its own gradients: what is left of a step is computation and the reducer's bookkeeping."""

    name = "nothing"

    def __call__(self, comm, bucket):
        yield from ()

    def bytes_sent(self, comm, buckets):
        return 0


def formula(comm, collective, flat, algorithm=None, root=0):
    """The bytes that this rank sends in a collective on a buffer like `flat`."""
    return comm.cost(collective, len(flat), flat.itemsize, algorithm, root).sent


def launch(exchange, comm, bucket):
    """The bucket's exchange has taken its first step."""
    bucket.launched_at, bucket.waits = time.perf_counter(), []
    bucket.steps = exchange(comm, bucket)
    bucket.handle = next(bucket.steps, None)


def complete(buckets, start):
    """All exchanges have ended, step by step, each step in the order of the buckets.

    Args:
        start: when the waiting began (`time.perf_counter()`).

    Returns:
        The seconds in which at least one bucket was in flight, and when the gradients were computed: `start` or, on a
        device, when it was done with the last of them.
    """
    seconds, until, computed, through = 0.0, 0.0, start, start
    while under_way := [bucket for bucket in buckets if bucket.handle]:
        for bucket in under_way:
            handle = bucket.handle
            handle.wait()
            began = handle.began_at or bucket.launched_at  # on a device, the gradients are computed only now
            computed = max(handle.began_at or start, computed)
            seconds += max(0.0, handle.ended_at - max(began, until))
            until = max(handle.ended_at, until)
            now = time.perf_counter()
            since = min(now, max(through, handle.began_at or start))
            bucket.waits.append(Wait(handle, bucket.launched_at, since, now))
            bucket.launched_at = through = now
            bucket.handle = next(bucket.steps, None)
    return seconds, computed
