"""Gradients travel in 16 bits and are added in 32: half the bytes, and rounding errors that do not add up.

    every rank     gradient + error of the last step → rounded, in one chunk per rank       error = what that cut off
    all-to-all     chunk c of every rank → rank c, pairwise
    rank c         adds up what arrived in float32, divides, rounds once                    error of chunk c += ...
    all-gather     the averages, in 16 bits → every rank, the same bits

An all-reduce in 16 bits would round after every addition, at each of the size - 1 hops of a ring. What a rank's
rounding cuts off is added to its next gradient (error feedback; Seide et al. 2014, Karimireddy et al. 2019): gradients
are late by a step in their last bits, but nothing is lost. The first half overlaps with backward; the second starts in
`finish`, where all ranks start it in one order.
"""

from types import SimpleNamespace

import numpy as np
from ml_dtypes import bfloat16

from .exchanges import formula

DTYPES = {"float16": np.dtype(np.float16), "bfloat16": np.dtype(bfloat16)}


class Wire:
    """An exchange: averages on every rank, of gradients that travel as `dtype`, "float16" or "bfloat16".

    float16 has three more bits, but above 65504 it overflows to inf, which `check_finite` names; bfloat16 has the range
    of float32. Per gradient it keeps 8 bytes: the error, and what is sent and received. Errors start at zero with each
    new set of buckets.

    Raises:
        ValueError: it is another dtype.
    """

    name = "all-reduce in 16 bits"

    def __init__(self, dtype):
        if dtype not in DTYPES:
            raise ValueError(f"Wire: dtype is {dtype!r}; gradients travel as {' or '.join(DTYPES)}")
        self.dtype = DTYPES[dtype]

    def __call__(self, comm, bucket):
        kept = bucket.kept or self._memory(comm, bucket)
        flat, sent = bucket.flat, kept.sent.reshape(-1)[: len(bucket.flat)]
        _round(flat, sent, kept.error)
        yield comm.ialltoall(kept.sent, kept.received, algorithm="pairwise")
        own = kept.sent[comm.rank]
        _average(kept.received, own, kept.error[comm.rank * len(own) :][: len(own)])
        yield comm.iallgather(own, kept.sent)
        flat[...] = sent

    def _memory(self, comm, bucket):
        """What a bucket needs: (size, chunk) arrays on the wire, and the errors in the type of the sums."""
        flat = bucket.flat
        shape = comm.size, -(-len(flat) // comm.size)
        bucket.kept = SimpleNamespace(
            sent=np.zeros_like(flat, self.dtype, shape=shape),
            received=np.zeros_like(flat, self.dtype, shape=shape),
            error=np.zeros_like(flat, np.result_type(flat.dtype, np.float32)),
        )
        return bucket.kept

    def bytes_sent(self, comm, buckets):
        total = 0
        for bucket in buckets:
            whole = np.broadcast_to(self.dtype.type(0), comm.size * -(-len(bucket.flat) // comm.size))  # no memory
            total += formula(comm, "alltoall", whole, "pairwise") + formula(comm, "allgather", whole)
        return total


quietly = np.errstate(over="ignore", invalid="ignore")  # what is not finite is the gradients' fault, and arrives


@quietly
def _round(flat, sent, error):
    """sent holds flat plus the error of the last step, rounded; error holds what that cut off."""
    error += flat
    sent[...] = error
    error -= sent
    _forget(error)


@quietly
def _average(received, own, error):
    """own holds the average of the rows of received, added in the type of error and rounded once.

    What that cut off is added to this rank's error of these elements, as many times as there are ranks, because it
    takes its way through the average again. error may be shorter than own: the rest is filling.
    """
    total = received[0].astype(error.dtype)
    for part in received[1:]:
        total += part
    total /= len(received)
    own[...] = total
    total -= own
    total *= len(received)
    error += total[: len(error)]
    _forget(error)


def _forget(error):
    """What is not finite is zero: one bad step must not spoil all that follow."""
    np.copyto(error, 0, where=~np.isfinite(error))
