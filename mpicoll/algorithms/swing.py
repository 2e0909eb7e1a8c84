"""Swing: recursive halving for a torus; the distances 1, -1, 3, -5, 11, ... stay short on a ring of ranks.

In step s an even rank r exchanges with r + d, an odd one with r - d (modulo p), d = (1 - (-2)^(s+1)) / 3. That is about
a third less far than recursive halving's 2^s, and the direction alternates, so fewer messages share a link of the ring.
Reduce-scatter of 4 ranks, chunk c of ranks r and s is written c_rs; each rank shows what it gives away:

    rank 0           rank 1           rank 2           rank 3
    12_0 to 1        03_1 to 0        03_2 to 3        12_3 to 2         distance 1
    3_01 to 3        2_01 to 2        1_23 to 1        0_23 to 0         distance -1
    0_0123           1_0123           2_0123           3_0123

The chunks that a rank gives are no neighbours; but those that it is responsible for after step s are either the same as
another rank's or have none in common with them, so there is an order of all chunks, here 0 3 1 2, in which whatever is
given is one piece. An all-reduce cuts its buffer in that order; reduce_scatter copies the chunks into it before, and
allgather out of it after. All send one message a round.

Cost, n bytes in all, p ranks: those of recursive halving, with its fold for other sizes: reduce_scatter lg p alpha +
(p-1)/p n (beta + gamma), allgather lg p alpha + (p-1)/p n beta, allreduce the sum of both. Folded: q, the largest power
of two, for p, and 2 alpha + (n + n/p) beta, and n gamma unless it is an allgather; allreduce 2 alpha + 2 n beta + n
gamma. (De Sensi, Bonato, Saam & Hoefler, NSDI 2024, the bandwidth-optimal variant on one port.) Scratch: n for what
arrives or for the copy; both for a reduce_scatter.

Order of reduction: a balanced tree over the folded ranks, the lower rank of a pair first: for 4 ranks (x_0 op x_1) op
(x_2 op x_3). Each element has one owner, who completes it; the others copy.
"""

from ..language import Algorithm, Array, Chunks, Comm, Op
from . import halving


def peer(rank: int, step: int, size: int) -> int:
    distance: int = (1 - (-2) ** (step + 1)) // 3
    return (rank - distance if rank % 2 else rank + distance) % size


def allreduce(comm: Comm, sendbuf: Array, result: Array, op: Op) -> Algorithm:
    """result holds the reduction over all ranks; sendbuf is only read (it may be result)."""
    yield from halving.allreduce(comm, sendbuf, result, op, peer)


def reduce_scatter(comm: Comm, chunks: Chunks, result: Array, op: Op) -> Algorithm:
    """result holds chunk[rank] reduced over all ranks; chunks is only read (result may be chunks[rank])."""
    yield from halving.reduce_scatter(comm, chunks, result, op, peer)


def allgather(comm: Comm, sendbuf: Array, result_chunks: Chunks) -> Algorithm:
    """result_chunks holds every rank's sendbuf (which may be result_chunks[rank])."""
    yield from halving.allgather(comm, sendbuf, result_chunks, peer)
