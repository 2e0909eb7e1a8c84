"""Averages gradients over the ranks while backward is still computing (Li et al., VLDB 2020).

    parameters   w0   b0   w1   b1   w2   b2          backward makes gradients ready from the right
    buckets      [ 2          ][ 1     ][ 0  ]        flat arrays; a gradient is a view into its bucket
    pending        2            2         0           bucket 0 is full: its all-reduce starts, backward goes on

All ranks launch buckets in index order: ranks that disagree would match the wrong messages. A bucket that fills early
waits for the ones before it.

It needs no model of ours: parameters are any objects with a name and arrays `data` and `grad`, backward is whatever
calls `mark_ready` (see examples/own_gradients.py and torch_gradients.py).
"""

import contextlib
import time

from .. import gpu
from .buckets import Bucket, assign
from .checks import check
from .exchanges import AllReduce, complete, launch
from .finite import FiniteCheck
from .fixed_order import OrderedAllReduce, Partials
from .ready_order import of_rank_0
from .usage import Usage


class Reducer:
    """Gradients averaged over all ranks of `comm`, in place.

    On construction the ranks' models and options are compared, rank 0's parameter values go to all ranks, and every
    `parameter.grad` becomes a view, zero at first, into the flat gradient of its bucket. A step is then: backward adds
    into the gradients and marks each ready; `finish()`; the optimizer; `zero_grad()`. Construction, the step and its
    end are collective: all ranks call them.

    Args:
        parameters: with unique names; the same names, shapes and dtypes in the same order on all ranks.
        bucket_cap_mb, first_bucket_mb, last_bucket_mb: sizes in MiB, see `buckets.assign`.
        overlap: buckets are launched as soon as they may be; otherwise all of them in `finish`.
        find_unused_parameters: parameters may take no part in a step, other ones on each rank; `report_used` says which
            do. Costs a small all-reduce per step.
        check_finite: `finish` raises an error that names parameter and rank if gradients are not finite.
        rebuild_buckets: at the end of the first step the buckets are made again, by the order in which gradients
            became ready on rank 0. Every `parameter.grad` is then another array with the same content.
        algorithm: of the all-reduce, None for the automatic choice.
        exchange: what is done with a full bucket instead of an all-reduce, see `exchanges`.
        reproducible: gradients are not averages but sums, over ranks and micro-batches of `no_sync`: divide the loss by
            all samples. Both numbers are powers of two; where their product is the same, so are the bits, see
            `fixed_order`. Inside `no_sync` a gradient is zero again once it has been marked ready. Not with algorithm,
            exchange or find_unused_parameters.

    Attributes:
        buckets: fixed, but for that one rebuilding.
        next_bucket: index of the first bucket that has not been launched in this step.
        op: "avg", or "sum" if it is reproducible.
        unused: the parameters that no rank used in the last finished step; they have kept their old gradients.
        communication_s: of the last finished step, seconds in which at least one bucket was in flight, from its launch
            until the engine saw it end; an upper bound, since the engine sees only when somebody pumps.
        computed_at: when the gradients of the last finished step were computed (`time.perf_counter()`).
        exposed_s: of the last finished step, seconds that `finish` took: the communication not hidden by computation.
            On a device it counts from when the last gradient is computed, which may be after backward has returned.
        waits: what exposed_s is made of, in seconds by name.
        bytes_sent: by this rank for the buckets of the last finished step.

    Raises:
        ValueError: parameters or options differ between ranks, a name occurs twice, a bucket size is not positive,
            there is no such algorithm, or options exclude each other.
        TypeError: a parameter is no array of floats.
    """

    def __init__(
        self,
        comm,
        parameters,
        bucket_cap_mb=25,
        first_bucket_mb=1,
        last_bucket_mb=1,
        *,
        overlap=True,
        find_unused_parameters=False,
        check_finite=False,
        rebuild_buckets=False,
        algorithm=None,
        exchange=None,
        reproducible=False,
    ):
        parameters = list(parameters)
        self._caps = bucket_cap_mb, first_bucket_mb, last_bucket_mb
        flags = overlap, find_unused_parameters, check_finite, rebuild_buckets, reproducible
        check(comm, parameters, self._caps, flags, algorithm, exchange)
        for p in parameters:
            comm.ibroadcast(p.data, root=0).wait()
        self._partials, self.op = (Partials(parameters), "sum") if reproducible else (None, "avg")
        exchange = OrderedAllReduce() if reproducible else exchange or AllReduce(algorithm)
        self.comm, self.overlap, self.exchange = comm, overlap, exchange
        self._usage = Usage(parameters) if find_unused_parameters else None
        self._finite = FiniteCheck() if check_finite else None
        self._rebuild = rebuild_buckets
        self._parameters = parameters
        self._build(parameters)
        self._ready, self._synchronise, self.next_bucket, self.unused = {}, True, 0, []
        self.communication_s, self.exposed_s, self.computed_at, self.waits = 0.0, 0.0, 0.0, {}
        self.bytes_sent = self._sent_before = 0

    def _build(self, parameters):
        """There are new buckets for parameters whose gradients become ready from the last on; gradients are zero."""
        self.buckets = [Bucket(part) for part in assign(parameters, *self._caps)]
        self._home = {}  # parameter → (its bucket, its view)
        for bucket in self.buckets:
            for p, view in bucket.views:
                p.grad = view
                self._home[p] = bucket, view

    def zero_grad(self):
        """Every gradient is zero, in place."""
        for bucket in self.buckets:
            bucket.flat.fill(0)
        if self._partials:
            self._partials.clear()

    @contextlib.contextmanager
    def no_sync(self):
        """Inside, gradients only accumulate: `mark_ready` sends nothing. For all micro-batches but the last."""
        before, self._synchronise = self._synchronise, False
        try:
            yield
        finally:
            self._synchronise = before

    def report_used(self, parameters):
        """The last forward used these parameters: no others will be marked ready in the backward that follows.

        With find_unused_parameters it is called before each backward, also inside `no_sync`: what any micro-batch has
        used takes part in the step.

        Raises:
            RuntimeError: without find_unused_parameters, or backward has begun.
            ValueError: the reducer does not have such a parameter.
        """
        if self._usage is None:
            raise RuntimeError("report_used: construct the reducer with find_unused_parameters=True")
        if self._ready:
            raise RuntimeError(
                f"report_used: {len(self._ready)} gradients are already ready in this step; report before backward"
            )
        parameters = list(parameters)
        for p in parameters:
            self._find("report_used", p)
        idle = self._usage.report(parameters)
        if self._synchronise:
            for p in idle:
                self._take(p)
            self.comm.progress()

    def mark_ready(self, parameter):
        """This step's gradient of `parameter` is complete and is not touched again before `finish` has returned.

        Raises:
            ValueError: the reducer does not have this parameter.
            RuntimeError: the gradient was already marked in this step, or was rebound to another array.
        """
        _, view = self._find("mark_ready", parameter)
        if parameter.grad is not view:
            raise RuntimeError(
                f"mark_ready: the gradient of {parameter.name} is no longer the view into its bucket; "
                f"add into it (grad += ..., grad[...] = ...) instead of assigning another array"
            )
        if self._usage and parameter in self._usage.idle:
            raise RuntimeError(f"mark_ready: {parameter.name} takes no part in this step: report_used did not name it")
        if not self._synchronise:
            if self._partials:
                self._partials.keep(parameter)
            return
        if parameter in self._ready:
            raise RuntimeError(f"mark_ready: the gradient of {parameter.name} was marked ready twice in one step")
        if self._partials:
            self._partials.close(parameter)
        self._take(parameter)
        self.comm.progress()

    def _find(self, call, parameter):
        if parameter not in self._home:
            raise ValueError(f"{call}: {parameter!r} is not one of the reducer's {len(self._home)} parameters")
        return self._home[parameter]

    def _take(self, parameter):
        """The gradient is ready; what can be launched is."""
        self._ready[parameter] = True
        bucket = self._home[parameter][0]
        bucket.pending -= 1
        if not bucket.pending:
            bucket.ready_at = time.perf_counter()
        if self.overlap:
            self._launch()

    def finish(self):
        """All gradients are averages over the ranks (sums if reproducible); the reducer is ready for the next step.

        Raises:
            RuntimeError: inside no_sync, or gradients have not been marked ready; nothing has changed then.
            FloatingPointError: with check_finite, on every rank; the step has ended, and the next one may begin.
        """
        start = time.perf_counter()
        self._check_complete()
        self._launch()
        used = self._usage and self._usage.ask(self.comm)
        with gpu.span(self.exchange.name):
            self.communication_s, self.computed_at = complete(self.buckets, start)
        self.unused = self._usage.settle(used.wait()) if used else []
        order = list(self._ready)
        self._ready.clear()
        if self._partials:
            self._partials.clear()
        self.next_bucket = 0
        for bucket in self.buckets:
            bucket.pending = len(bucket.views)
        self.bytes_sent = self.comm.bytes_sent - self._sent_before if self.buckets else 0
        self.exposed_s = time.perf_counter() - self.computed_at
        self.waits = {self.exchange.name: self.exposed_s}
        if self._finite:
            self._finite.verdict(self.comm, self.buckets)  # of these buckets: they are not made again before
        if self._rebuild:
            self._rebuild = False
            averages = [(p, p.grad) for p in order]
            self._build(of_rank_0(self.comm, order, self._parameters)[::-1])
            for p, average in averages:
                p.grad[...] = average

    def formula_bytes(self):
        """What `bytes_sent` has to be, by the closed forms of `cost`."""
        more = self._usage.bytes_sent(self.comm) if self._usage else 0
        return self.exchange.bytes_sent(self.comm, self.buckets) + more

    def _launch(self):
        """Every full bucket before which all are launched is launched."""
        while self.next_bucket < len(self.buckets) and not self.buckets[self.next_bucket].pending:
            bucket = self.buckets[self.next_bucket]
            if self.next_bucket == 0:
                self._sent_before = self.comm.bytes_sent
            if self._finite:
                self._finite.look(bucket)
            with gpu.span(f"bucket {self.next_bucket}"):
                launch(self.exchange, self.comm, bucket)
            self.next_bucket += 1

    def _check_complete(self):
        if not self._synchronise:
            raise RuntimeError(
                "finish: called inside no_sync, where nothing is sent; leave it before the last micro-batch"
            )
        missing = [p.name for p in self._home if p not in self._ready]
        if not missing:
            return
        waiting = ", ".join(
            f"bucket {i} waits for {b.pending} of {len(b.views)}" for i, b in enumerate(self.buckets) if b.pending
        )
        way_out = "report_used says so" if self._usage else "pass find_unused_parameters=True"
        raise RuntimeError(
            f"finish: {len(missing)} of {len(self._home)} gradients were not marked ready: "
            f"{', '.join(missing)} ({waiting}); if they take no part in this step, {way_out}"
        )
