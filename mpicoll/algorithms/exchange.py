"""Everybody sends everything to everybody, and everybody reduces all of it: the lesson's second naive all-reduce.

    rank       0             1             2             3
    sends      x_0 to 123    x_1 to 023    x_2 to 013    x_3 to 012
    reduces    x_0 op x_1 op x_2 op x_3, from the left, on every rank

Cost, n bytes, p ranks: (p-1)(alpha + n beta + n gamma), and p-1 buffers of scratch memory. All links are busy, with
p/2 times the bytes that are necessary; but there is only one round, so it can pay for a few ranks and small buffers.
(The lesson "Data Parallelism & Collective Communication", section 5.)

Order of reduction: ((x_0 op x_1) op x_2) op ... on every rank. Starting with its own, each would get other bits.
"""

from ..language import Algorithm, Array, Comm, Op


def allreduce(comm: Comm, sendbuf: Array, result: Array, op: Op) -> Algorithm:
    """result holds the reduction over all ranks; sendbuf is only read (it may be result)."""
    rank, size = comm.rank, comm.size
    if size == 1:
        yield comm.copy(result, sendbuf)
        yield op.finish(result)
        return
    parts = [sendbuf if peer == rank else comm.scratch(sendbuf) for peer in range(size)]
    peers = [(rank + i) % size for i in range(1, size)]
    sends = [comm.Isend(sendbuf, peer) for peer in peers]
    yield *sends, *(comm.Irecv(parts[peer], peer) for peer in reversed(peers))
    so_far, spare = parts[0], parts[1 if rank == 0 else 0]  # not in result, which may be the sendbuf still to come
    for peer in range(1, size):
        out = result if peer == size - 1 else spare
        yield op(out, so_far, parts[peer])
        so_far = out
    yield op.finish(result)
