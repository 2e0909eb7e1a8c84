"""Recursive halving: in each round a rank gives half of what it is still responsible for to the other one of a pair.

Reduce-scatter of 4 ranks, chunk c of ranks r and s is written c_rs; each rank shows what it gives away:

    rank 0           rank 1           rank 2           rank 3
    23_0 to 2        23_1 to 3        01_2 to 0        01_3 to 1         far first: distance p/2, p/4, ... 1
    1_02 to 1        0_13 to 0        3_02 to 3        2_13 to 2
    0_0123           1_0123           2_0123           3_0123

All-reduce goes the same way back, doubling what a rank has; reduce does so only towards the root, as a tree. Near first
(near=True) takes the distances the other way round, 1, 2, ... p/2: the large messages go to near ranks. Then rank r's
part is the one at the place that is r with its bits reversed: an all-reduce or reduce may cut so, a reduce_scatter has
to copy the chunks into that order.

Cost, n bytes in all, p ranks: reduce_scatter lg p alpha + (p-1)/p n (beta + gamma); allreduce and reduce 2 lg p alpha +
2 (p-1)/p n beta + (p-1)/p n gamma, the fewest bytes in few rounds. Other p, q the largest power of two in it: the fold,
in which one of a pair hands all it has to the other, and what remains of the formulas is for q; + 2 alpha + 2 n beta +
n gamma (allreduce), alpha + n beta + n gamma (reduce), 2 alpha + (n + n/p) beta + n gamma (reduce_scatter; there a pair
has two chunks, and halves of the buffer are not of one length). (Rabenseifner, ICCS 2004; Thakur, Rabenseifner & Gropp,
IJHPCA 2005.) Scratch: n for what arrives; n more for partial results where no result is that long.

Order of reduction: a balanced tree over the folded ranks, lower ranks first: (x_0 op x_2) op (x_1 op x_3), near first
(x_0 op x_1) op (x_2 op x_3). Each element has one owner, who completes it; the others copy.
"""

from ..language import Algorithm, Array, Chunks, Comm, OnRoot, Op
from . import halving
from .cut import bounds


def far_first(rank: int, step: int, size: int) -> int:
    return rank ^ size >> (step + 1)


def near_first(rank: int, step: int, size: int) -> int:
    return rank ^ 1 << step


def allreduce(comm: Comm, sendbuf: Array, result: Array, op: Op, near: bool = False) -> Algorithm:
    """result holds the reduction over all ranks; sendbuf is only read (it may be result)."""
    yield from halving.allreduce(comm, sendbuf, result, op, near_first if near else far_first)


def reduce_scatter(comm: Comm, chunks: Chunks, result: Array, op: Op, near: bool = False) -> Algorithm:
    """result holds chunk[rank] reduced over all ranks; chunks is only read (result may be chunks[rank])."""
    yield from halving.reduce_scatter(comm, chunks, result, op, near_first if near else far_first)


def reduce(comm: Comm, sendbuf: Array, result: OnRoot[Array], op: Op, root: int, near: bool = False) -> Algorithm:
    """On the root result holds the reduction over all ranks; sendbuf is only read (on the root it may be result).

    Elsewhere result is None. A rank collects what lies on its side of an exchange until the root is on the other one.
    """
    acting, partner = halving.fold(comm.rank, comm.size, root)
    if comm.rank not in acting:
        yield comm.Isend(sendbuf, partner)
        return
    peer = near_first if near else far_first
    into = result if comm.rank == root else comm.scratch(sendbuf)
    own, steps = halving.exchanges(peer, comm.rank, acting, bounds(len(sendbuf), len(acting)))
    yield from halving.reduce_own(comm, partner, sendbuf, into, into[own], steps, op)
    vrank, vroot = acting.index(comm.rank), acting.index(root)
    for other, keep, give in reversed(steps):
        if (vrank ^ vroot) & (vrank ^ acting.index(other)):
            yield comm.Isend(into[keep], other)
            return
        yield comm.Irecv(into[give], other)
