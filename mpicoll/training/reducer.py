"""Averages gradients over the ranks while backward is still computing (Li et al., VLDB 2020).

    parameters   w0   b0   w1   b1   w2   b2          backward makes gradients ready from the right
    buckets      [ 2          ][ 1     ][ 0  ]        flat arrays; a gradient is a view into its bucket
    pending        2            2         0           bucket 0 is full: its all-reduce starts, backward goes on

All ranks launch buckets in index order: ranks that disagree would match the wrong messages. A bucket that fills early
waits for the ones before it.
"""

import contextlib
import time

import numpy as np

from .. import gpu
from .replicas import check_layout

MIB = 1 << 20


class Bucket:
    """Some parameters whose gradients are sent together.

    Attributes:
        parameters: in the order of their places in `flat`.
        flat: the gradients, one after another.
        pending: gradients that are not ready yet in this step.
        handle, launched_at: of the all-reduce in flight, and its start (`time.perf_counter()`).
    """

    __slots__ = ("flat", "handle", "launched_at", "parameters", "pending")

    def __init__(self, parameters):
        self.parameters, self.pending = parameters, len(parameters)
        self.handle = self.launched_at = None
        self.flat = np.zeros_like(parameters[0].data, shape=(sum(p.data.size for p in parameters),))

    def views(self):
        """Every parameter with its part of `flat`, in the parameter's shape."""
        offset = 0
        for p in self.parameters:
            yield p, self.flat[offset : offset + p.data.size].reshape(p.data.shape)
            offset += p.data.size


def assign(parameters, bucket_cap_mb=25, first_bucket_mb=1):
    """The parameters in reverse order, cut into lists, one per bucket.

    A list is closed before it would exceed its cap in MiB (the first list has its own) and where the dtype changes; a
    parameter above the cap has a bucket of its own.
    """
    lists, room = [], 0
    for p in reversed(parameters):
        if not lists or p.data.nbytes > room or p.data.dtype != lists[-1][0].data.dtype:
            room = min(first_bucket_mb, bucket_cap_mb) * MIB if not lists else bucket_cap_mb * MIB
            lists.append([])
        lists[-1].append(p)
        room -= p.data.nbytes
    return lists


class Reducer:
    """Gradients averaged over all ranks of `comm`, in place.

    On construction the ranks' models are compared, rank 0's parameter values go to all ranks, and every
    `parameter.grad` becomes a view, zero at first, into the flat gradient of its bucket. A step is then: backward adds
    into the gradients and marks each ready; `finish()`; the optimizer; `zero_grad()`. Construction, the step and its
    end are collective: all ranks call them.

    Args:
        parameters: with unique names; the same names, shapes and dtypes in the same order on all ranks.
        bucket_cap_mb, first_bucket_mb: sizes in MiB, as in PyTorch; see `assign`.
        overlap: buckets are launched as soon as they may be; otherwise all of them in `finish`.
        algorithm: of the all-reduce, None for the automatic choice.

    Attributes:
        buckets: fixed at construction.
        next_bucket: index of the first bucket that has not been launched in this step.
        communication_s: of the last finished step, seconds in which at least one bucket was in flight, from its launch
            until the engine saw it end; an upper bound, since the engine sees only when somebody pumps.
        exposed_s: of the last finished step, seconds that `finish` took: the communication not hidden by computation.
            On a device it counts from when the last gradient is computed, which may be after backward has returned.
        bytes_sent: by this rank for the buckets of the last finished step.

    Raises:
        ValueError: parameters differ between ranks, a name occurs twice, a bucket size is not positive, or there is no
            such algorithm.
        TypeError: a parameter is no array of floats.
    """

    def __init__(self, comm, parameters, bucket_cap_mb=25, first_bucket_mb=1, overlap=True, algorithm=None):
        parameters = list(parameters)
        if bucket_cap_mb <= 0 or first_bucket_mb <= 0:
            raise ValueError(f"bucket sizes are positive: bucket_cap_mb={bucket_cap_mb}, {first_bucket_mb=}")
        names = [p.name for p in parameters]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"parameter names occur more than once: {', '.join(twice)}")
        comm.explain("allreduce", 0, algorithm)  # it is there, or the error says what is
        if wrong := [p for p in parameters if p.data.dtype.kind in "biuc"]:
            raise TypeError(f"gradients are averaged, so parameters are floats: {', '.join(map(repr, wrong))}")
        check_layout(comm, parameters)
        for p in parameters:
            comm.ibroadcast(p.data, root=0).wait()
        self.comm, self.overlap, self.algorithm = comm, overlap, algorithm
        self.buckets = [Bucket(part) for part in assign(parameters, bucket_cap_mb, first_bucket_mb)]
        self._home = {}  # parameter → (its bucket, its view)
        for bucket in self.buckets:
            for p, view in bucket.views():
                p.grad = view
                self._home[p] = bucket, view
        self._ready, self._synchronise, self.next_bucket = set(), True, 0
        self.communication_s, self.exposed_s, self.bytes_sent, self._sent_before = 0.0, 0.0, 0, 0

    def zero_grad(self):
        """Every gradient is zero, in place."""
        for bucket in self.buckets:
            bucket.flat.fill(0)

    @contextlib.contextmanager
    def no_sync(self):
        """Inside, gradients only accumulate: `mark_ready` sends nothing. For all micro-batches but the last."""
        before, self._synchronise = self._synchronise, False
        try:
            yield
        finally:
            self._synchronise = before

    def mark_ready(self, parameter):
        """This step's gradient of `parameter` is complete and is not touched again before `finish` has returned.

        Raises:
            ValueError: the reducer does not have this parameter.
            RuntimeError: the gradient was already marked in this step, or was rebound to another array.
        """
        if parameter not in self._home:
            raise ValueError(f"mark_ready: {parameter!r} is not one of the reducer's {len(self._home)} parameters")
        bucket, view = self._home[parameter]
        if parameter.grad is not view:
            raise RuntimeError(
                f"mark_ready: the gradient of {parameter.name} is no longer the view into its bucket; "
                f"add into it (grad += ..., grad[...] = ...) instead of assigning another array"
            )
        if not self._synchronise:
            return
        if parameter in self._ready:
            raise RuntimeError(f"mark_ready: the gradient of {parameter.name} was marked ready twice in one step")
        self._ready.add(parameter)
        bucket.pending -= 1
        if self.overlap:
            self._launch()
        self.comm.progress()

    def finish(self):
        """All gradients are the averages over the ranks, and the reducer is ready for the next step.

        Raises:
            RuntimeError: inside no_sync, or gradients have not been marked ready; nothing has changed then.
        """
        start = time.perf_counter()
        if not self._synchronise:
            raise RuntimeError(
                "finish: called inside no_sync, where nothing is sent; leave it before the last micro-batch"
            )
        if missing := [p.name for p in self._home if p not in self._ready]:
            waiting = ", ".join(
                f"bucket {i} waits for {b.pending} of {len(b.parameters)}"
                for i, b in enumerate(self.buckets)
                if b.pending
            )
            raise RuntimeError(
                f"finish: {len(missing)} of {len(self._home)} gradients were not marked ready: "
                f"{', '.join(missing)} ({waiting})"
            )
        self._launch()
        self.communication_s, until, computed = 0.0, 0.0, start
        for bucket in self.buckets:
            bucket.handle.wait()
            ended = bucket.handle.ended_at
            began = bucket.handle.began_at or bucket.launched_at  # on a device, the gradients are computed only now
            computed = max(bucket.handle.began_at or start, computed)
            self.communication_s += max(0.0, ended - max(began, until))
            until = max(ended, until)
            bucket.pending, bucket.handle = len(bucket.parameters), None
        self.bytes_sent = self.comm.bytes_sent - self._sent_before if self.buckets else 0
        self._ready.clear()
        self.next_bucket = 0
        self.exposed_s = time.perf_counter() - computed

    def _launch(self):
        """Every full bucket before which all are launched is launched."""
        while self.next_bucket < len(self.buckets) and not self.buckets[self.next_bucket].pending:
            bucket = self.buckets[self.next_bucket]
            if self.next_bucket == 0:
                self._sent_before = self.comm.bytes_sent
            bucket.launched_at = time.perf_counter()
            with gpu.span(f"bucket {self.next_bucket}"):
                bucket.handle = self.comm.iallreduce(bucket.flat, bucket.flat, op="avg", algorithm=self.algorithm)
            self.next_bucket += 1
