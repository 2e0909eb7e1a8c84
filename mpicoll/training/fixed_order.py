"""Gradients are added in one order, whatever the number of ranks: their sums have the same bits.

Floating-point addition is not associative. So the global batch is cut into V shards, V a power of two and fixed, and
their gradients are added along one binary tree, lower shards first. On 2 ranks, V = 8:

    rank 0   0   1   2   3        rank 1   4   5   6   7      micro-batches, all of one shape, each from zero gradients
             0 + 1   2 + 3                 4 + 5   6 + 7      added where they were computed, as each becomes ready
             (0+1) + (2+3)                 (4+5) + (6+7)
                       0..3      +      4..7                  recursive halving between ranks at distances 1, 2, 4, ...

Recursive halving near first has this tree for every element; with the doubling that follows it sends no more than a
ring. A rank with k shards keeps lg k partial sums of every gradient.
"""

import functools

import numpy as np

from .. import cost
from ..algorithms import FAMILIES
from ..algorithms.cut import even

NEAR_FIRST = functools.partial(FAMILIES["allreduce"]["recursive_halving"], near=True)


class Partials:
    """The gradients of a rank's micro-batches, added along the tree: a binary counter whose digits are sums.

    sums[p][i] is that of 2^i micro-batches, where the number so far, counts[p], has the digit i.
    """

    def __init__(self, parameters):
        self.sums = {p: [] for p in parameters}
        self.clear()

    def clear(self):
        """There are no micro-batches."""
        self.counts, self.closing = dict.fromkeys(self.sums, 0), False

    def keep(self, parameter):
        """The gradient is among the sums, as that of one more micro-batch, and is zero."""
        sums, count, grad = self.sums[parameter], self.counts[parameter], parameter.grad
        carry = (count ^ (count + 1)).bit_length() - 1  # so many digits are 1 and become 0
        if carry == len(sums):
            sums.append(np.empty_like(grad))
        for earlier in sums[:carry]:
            np.add(earlier, grad, out=grad)
        sums[carry][...] = grad
        grad.fill(0)
        self.counts[parameter] = count + 1

    def close(self, parameter):
        """The gradient, that of the last micro-batch, is the sum over all of them.

        Raises:
            RuntimeError: before the first change: their number is no power of two, or not the same for all parameters.
        """
        if not self.closing:
            self._check()
            self.closing = True
        for earlier in self.sums[parameter][: self.counts[parameter].bit_length()]:
            np.add(earlier, parameter.grad, out=parameter.grad)

    def _check(self):
        first, *others = self.counts
        count = self.counts[first] + 1
        if unlike := [p for p in others if self.counts[p] + 1 != count]:
            raise RuntimeError(
                f"mark_ready: {unlike[0].name} is in {self.counts[unlike[0]] + 1} micro-batches and {first.name} in "
                f"{count}; with reproducible=True each one marks every gradient once"
            )
        if count & (count - 1):
            raise RuntimeError(
                f"mark_ready: {count} micro-batches are no full tree; with reproducible=True their number is a power "
                f"of two, such as {1 << count.bit_length() >> 1} or {1 << count.bit_length()}"
            )


class OrderedAllReduce:
    """An exchange: sums, on every rank, in the tree's order; the number of ranks is a power of two."""

    name = "all-reduce"

    def __call__(self, comm, bucket):
        yield comm.iallreduce(bucket.flat, bucket.flat, op="sum", algorithm=NEAR_FIRST)

    def bytes_sent(self, comm, buckets):
        return sum(_sent(comm, b.flat) for b in buckets)


def _sent(comm, flat):
    """Not `comm.cost`: an algorithm that is passed as a function counts the ranks as they are."""
    counts = even(len(flat), comm.size)
    return cost.of("allreduce", "recursive_halving", comm.rank, counts, flat.itemsize, near=True).sent
