"""What happened when in the last steps of a training run, on all ranks, beside what the cost model predicts.

    computing      forward | layer  layer  layer  layer | optimizer        rank 0 (and so on for every rank)
    waiting                                      bucket 2
    bucket 0               .|--round 0--|--round 1--|                      ready, start, rounds, done
    bucket 1                      ......|--round 0--|--round 1--|          ready, waits for its turn, start, ...
    predicted              [ bucket 0 ] [ bucket 1 ] [ bucket 2 ]

A Chrome trace shows it (https://ui.perfetto.dev, chrome://tracing), or a picture. Times are the host's, as the engine
saw them: a round ends when somebody looks. On a device, computing is shown when it was queued.

Nothing of this is in the way of a run without one: the model, the exchange and the optimizer's step are wrapped.
"""

import json
import time
from collections import deque
from types import SimpleNamespace

import numpy as np

from .trace import predict

LAST = 5  # steps that are kept, so that the file stays small
PINGS = 12


class Timeline:
    """From now on, the last steps of `model`, a DistributedDataParallel, and `optimizer` are kept.

    Args:
        first: steps made before.
        clock: seconds.
    """

    def __init__(self, model, optimizer, first=0, clock=time.perf_counter):
        self.reducer, self.clock, self.step = model, clock, first
        self.steps, self.spans = deque(maxlen=LAST), []
        model.model = _Model(model.model, self)
        model.exchange = self.exchange = _Exchange(model.exchange)
        self._optimize, optimizer.step = optimizer.step, self._end

    def span(self, name, start, end):
        """This was computed."""
        self.spans.append((name, start, end))

    def _end(self):
        """The optimizer's step, and with it this one, is through."""
        begin = self.clock()
        self._optimize()
        end = self.clock()
        pull = self.reducer.waits.get("pull", 0.0)  # at the end of a served optimizer's step
        self.span("optimizer", begin, end - pull)
        self.step += 1
        buckets, waits = [], []
        for i, bucket in enumerate(self.reducer.buckets):
            calls = [
                {"what": noted.what, "start": waited.start, "began": waited.handle.began_at, "stamps": noted.stamps,
                 "done": waited.handle.ended_at}
                for noted, waited in zip(self.exchange.noted.pop(bucket, ()), bucket.waits, strict=False)
            ]  # fmt: skip
            name = self.exchange.name if len(self.reducer.buckets) == 1 else f"{self.exchange.name}: bucket {i}"
            waits += [(name, waited.since, waited.until) for waited in bucket.waits]
            buckets.append({"nbytes": bucket.flat.nbytes, "ready": bucket.ready_at, "calls": calls})
        waits.sort(key=lambda wait: wait[1])  # an exchange of two calls waits for all first ones, then for the others
        waits += [("pull", end - pull, end)] if pull else []
        self.exchange.noted.clear()  # those of buckets that were made again
        self.steps.append({"step": self.step, "spans": self.spans, "waits": waits, "buckets": buckets})
        self.spans = []

    def gather(self, comm):
        """Every rank's steps by rank 0's clock, on all ranks; collective."""
        off = offset(comm, self.clock)
        text = np.frombuffer(json.dumps(_moved(list(self.steps), -off)).encode(), np.uint8)
        lengths = comm.allgather(np.array([len(text)]))
        everything = bytes(comm.allgather(text.copy(), counts=[int(n) for n in lengths]))
        ends = np.cumsum(lengths)
        steps = [json.loads(everything[end - n : end]) for n, end in zip(lengths, ends, strict=True)]
        for step in (step for own in steps for step in own):
            predict(comm, step)
        return steps


class _Model:
    """A model whose forward and backward a timeline sees, layer by layer."""

    def __init__(self, model, timeline):
        self._model, self._timeline = model, timeline

    def __getattr__(self, name):
        return getattr(self._model, name)

    def forward(self, x):
        line = self._timeline
        start = line.clock()
        y = self._model.forward(x)
        line.span("forward", start, line.clock())
        return y

    def backward(self, grad, after_layer):
        line = self._timeline
        since = line.clock()

        def after(layer):
            nonlocal since
            end = line.clock()
            line.span(layer_name(layer), since, end)
            after_layer(layer)
            since = line.clock()
            line.span("drive communication", end, since)

        self._model.backward(grad, after)


def layer_name(layer):
    """What a layer is called: as its parameters, or else as its class."""
    names = dict.fromkeys(p.name.rpartition(".")[0] for p in layer.parameters)
    return " + ".join(names) or type(layer).__name__


class _Exchange:
    """An exchange whose calls are noted: which they are, and when their rounds end."""

    def __init__(self, exchange):
        self._exchange, self.noted = exchange, {}

    def __getattr__(self, name):
        return getattr(self._exchange, name)

    def __call__(self, comm, bucket):
        calls = self.noted[bucket] = []
        return self._exchange(_Noting(comm, calls), bucket)


class _Noting:
    """A communicator whose nonblocking collectives are noted."""

    def __init__(self, comm, calls):
        self._comm, self._calls = comm, calls

    def __getattr__(self, name):
        found = getattr(self._comm, name)
        return self._noting(name[1:], found) if name.startswith("i") else found

    def _noting(self, collective, start):
        def call(buf, *arguments, **options):
            stamps = []
            handle = start(buf, *arguments, **options)
            handle.watch(lambda generator: _stamped(generator, stamps))
            nbytes = buf.nbytes * (self._comm.size if collective == "allgather" else 1)
            algorithm = options.get("algorithm")
            if algorithm is not None and not isinstance(algorithm, str):  # a function, perhaps with options
                algorithm = getattr(algorithm, "func", algorithm).__module__.rpartition(".")[2]
            self._calls.append(SimpleNamespace(what=(collective, nbytes, algorithm), stamps=stamps))
            return handle

        return call


def _stamped(generator, stamps):
    """The generator's rounds; a stamp for each that is complete."""
    stamps.append(time.perf_counter())
    for items in generator:
        yield items
        stamps.append(time.perf_counter())


def offset(comm, clock=time.perf_counter):
    """How many seconds this rank's clock is ahead of rank 0's; collective.

    Rank 0 answers pings with its time, taken to be the middle of the round trip; the shortest one counts (Cristian
    1989): what is wrong is at most half of it.
    """
    best, found = np.inf, 0.0
    for rank in range(1, comm.size):
        for _ in range(PINGS):
            if comm.rank == rank:
                start = clock()
                comm.send(np.zeros(1), 0)
                theirs = float(comm.recv(np.empty(1), 0)[0])
                end = clock()
                if end - start < best:
                    best, found = end - start, (start + end) / 2 - theirs
            elif comm.rank == 0:
                comm.recv(np.empty(1), rank)
                comm.send(np.array([clock()]), rank)
    return found


def _moved(steps, seconds):
    """The steps with all times moved."""

    def move(t):
        return None if t is None else t + seconds

    return [
        {
            "step": step["step"],
            "spans": [(name, move(start), move(end)) for name, start, end in step["spans"]],
            "waits": [(name, move(start), move(end)) for name, start, end in step["waits"]],
            "buckets": [
                {
                    **bucket,
                    "ready": move(bucket["ready"]),
                    "calls": [
                        {
                            **call,
                            **{name: move(call[name]) for name in ("start", "began", "done")},
                            "stamps": [move(t) for t in call["stamps"]],
                        }
                        for call in bucket["calls"]
                    ],
                }
                for bucket in step["buckets"]
            ],
        }
        for step in steps
    ]
