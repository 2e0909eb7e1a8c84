"""Recursive doubling: in round k every rank exchanges all it has with the rank at distance 2^k.

    rank       0      1      2      3
    has        0      1      2      3
    round 0    01     01     23     23         0 <-> 1    2 <-> 3
    round 1    0123   0123   0123   0123       0 <-> 2    1 <-> 3

Other sizes fold: with q the largest power of two in p, the first 2 (p-q) ranks form pairs; the even one hands its data
to the odd one before the exchanges and gets the result after them.

Cost, n bytes, p ranks: lg p (alpha + n beta + n gamma); other p: lg q instead of lg p, + 2 alpha + 2 n beta + n gamma.
The fewest rounds, but all of n in each: for small buffers. An all-gather doubles what a rank has, so it sends the least
possible: lg p alpha + (p-1)/p n beta; other p: lg q instead of lg p, + 2 alpha + (n + n/p) beta. (Thakur, Rabenseifner
& Gropp, IJHPCA 2005.)

Order of reduction: the balanced tree over the folded ranks; both sides of an exchange put the lower ranks' operand
first, so all ranks compute the same bits.
"""

from ..language import Algorithm, Array, Chunks, Comm, Op
from . import halving
from .recursive_halving import far_first


def allreduce(comm: Comm, sendbuf: Array, result: Array, op: Op) -> Algorithm:
    """result holds the reduction over all ranks; sendbuf is only read (it may be result)."""
    rank, size = comm.rank, comm.size
    power = 1 << (size.bit_length() - 1)
    pairs = size - power  # of ranks (2i, 2i + 1) that act as one
    if rank < 2 * pairs and rank % 2 == 0:
        yield comm.Isend(sendbuf, rank + 1)
        yield comm.Irecv(result, rank + 1)
        return
    got = comm.scratch(sendbuf)
    mine = sendbuf
    if rank < 2 * pairs:
        yield comm.Irecv(got, rank - 1)
        yield op(result, got, mine)
        mine = result
    vrank = rank // 2 if rank < 2 * pairs else rank - pairs
    distance = 1
    while distance < power:
        other = vrank ^ distance
        peer = 2 * other + 1 if other < pairs else other + pairs
        yield comm.Isend(mine, peer), comm.Irecv(got, peer)
        yield op(result, got, mine) if peer < rank else op(result, mine, got)
        mine = result
        distance *= 2
    if size == 1:
        yield comm.copy(result, sendbuf)
    yield op.finish(result)
    if rank < 2 * pairs:
        yield comm.Isend(result, rank - 1)


def allgather(comm: Comm, sendbuf: Array, result_chunks: Chunks) -> Algorithm:
    """result_chunks holds every rank's sendbuf (which may be result_chunks[rank]): recursive halving backwards."""
    yield from halving.allgather(comm, sendbuf, result_chunks, far_first)


def barrier(comm: Comm, token: Array, op: Op) -> Algorithm:
    """No rank has left before all have entered: an all-reduce of the empty array `token`."""
    yield from allreduce(comm, token, token, op)
