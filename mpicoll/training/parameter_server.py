"""The way before all-reduce: one rank has the parameters, the others fetch them and bring it their gradients.

    workers    pull: parameters     forward, backward     push: gradients            wait ...       pull: parameters
    server     broadcast            (its share, or none)  reduce      optimizer.step()              broadcast

The server alone holds the optimizer's state. In a step it receives the gradients and sends the parameters of all
workers: its links carry that much more than anyone's in an all-reduce, and while it updates all others wait (Li et al.,
OSDI 2014; replaced by decentralised collectives in Patarasuk & Yuan, JPDC 2009).
"""

import time

import numpy as np

from .. import gpu
from .exchanges import formula
from .sampler import Sampler


class ParameterServer:
    """An exchange, the push: the averages on rank `server` alone. `optimizer` makes what updates there, and pulls.

    Elsewhere the gradients stay this rank's own.
    """

    name = "push"

    def __init__(self, server=0):
        self.server = server

    def __call__(self, comm, bucket):
        on_server = bucket.flat if comm.rank == self.server else None
        yield comm.ireduce(bucket.flat, on_server, op="avg", root=self.server)

    def optimizer(self, reducer, make):
        """The optimizer to call on every rank; make(parameters) is called on the server alone."""
        return ServedOptimizer(reducer, make, self.server)

    def bytes_sent(self, comm, buckets):
        pushed = sum(formula(comm, "reduce", bucket.flat, root=self.server) for bucket in buckets)
        flats = [p.data.reshape(-1) for bucket in buckets for p, _ in bucket.views]
        return pushed + sum(formula(comm, "broadcast", flat, root=self.server) for flat in flats)


class ServedOptimizer:
    """The server's optimizer, as seen from every rank.

    A rank waits for the new parameters while the server updates them; this pull is among the reducer's `waits`, and
    in its times and bytes.

    Attributes:
        lr: of the next step.
        scale, replicated: gradients are those of the loss itself, and the state is the server's; see `optimizers`.
    """

    scale, replicated = 1.0, False

    def __init__(self, reducer, make, server):
        self.reducer, self.server = reducer, server
        self.parameters = list(reducer.parameters)
        self.optimizer = make(self.parameters) if reducer.comm.rank == server else None
        self.lr = self.optimizer.lr if self.optimizer else None

    def zero_grad(self):
        """Every gradient is zero."""
        self.reducer.zero_grad()

    def report(self):
        """What the record of a step says of the optimizer."""
        return {}

    def state(self):
        """The server's optimizer's; elsewhere there is none."""
        return self.optimizer.state() if self.optimizer else {}

    def restore(self, state):
        """The server's optimizer has this state, which nobody else needs."""
        if self.optimizer:
            self.optimizer.restore(state)

    def step(self):
        """The parameters of all ranks are the server's, which has moved them by one step."""
        if self.optimizer:
            self.optimizer.lr = self.lr
            self.optimizer.step()
        reducer, comm, start = self.reducer, self.reducer.comm, time.perf_counter()
        before = comm.bytes_sent
        with gpu.span("pull"):
            for handle in [comm.ibroadcast(p.data, root=self.server) for p in self.parameters]:
                handle.wait()
        took = time.perf_counter() - start
        reducer.waits["pull"] = took
        reducer.exposed_s += took
        reducer.communication_s += took
        reducer.bytes_sent += comm.bytes_sent - before


class WorkersSampler(Sampler):
    """The samples where rank 0 is a server and nothing else: the other ranks share the global batch.

    The server computes an empty batch: its gradients are zero, and averages over all ranks right, since the divisor is
    what each rank would have if the server, too, had a share.

    Raises:
        ValueError: as Sampler, for one rank fewer; or there is no other rank.
    """

    def __init__(self, count, global_batch, rank, size, *arguments, **options):
        if size == 1:
            raise ValueError("a dedicated parameter server needs at least one other rank, which computes")
        super().__init__(count, global_batch, max(rank - 1, 0), size - 1, *arguments, **options)
        self.divisor, self._serves = global_batch / size, rank == 0
        if self._serves:
            self.share, self.accumulation = 0, 1  # self.shares are the workers'

    def batch(self, step):
        """This rank's part of the global batch of this step, of the server none: (share,) integers."""
        return np.empty(0, np.int64) if self._serves else super().batch(step)
