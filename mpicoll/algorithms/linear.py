"""The star: every rank exchanges messages with the root alone, as with a parameter server.

    broadcast, scatter    0 -> 1    0 -> 2    0 -> 3        the root sends to all, one message after the other
    reduce, gather        1 -> 0    2 -> 0    3 -> 0        the root receives from all

All-reduce is reduce to rank 0, then broadcast: the first of the lesson's two naive ways, in which the port of rank 0
carries everything and all other links are idle.

Cost, n bytes in all, p ranks: broadcast (p-1)(alpha + n beta), reduce the same and up to (p-1) n gamma, which hide
behind the transfers; gather and scatter (p-1) alpha + (p-1)/p n beta: no fewer bytes are possible at the root.
(CMU 11-868 L14, slides 7 and 30; the lesson "Data Parallelism & Collective Communication", section 5.)

Order of reduction: ((x_0 op x_1) op x_2) op ... in vranks, counted from the root; computed there alone.
"""

from ..language import Algorithm, Array, Chunks, Comm, OnRoot, Op


def broadcast(comm: Comm, buf: Array, root: int) -> Algorithm:
    """buf holds what it holds on the root."""
    if comm.rank == root:
        yield tuple(comm.Isend(buf, (root + i) % comm.size) for i in range(1, comm.size))
    else:
        yield comm.Irecv(buf, root)


def reduce(comm: Comm, sendbuf: Array, result: OnRoot[Array], op: Op, root: int) -> Algorithm:
    """On the root result holds the reduction over all ranks; sendbuf is only read (on the root it may be result).

    Elsewhere result is None. One contribution is reduced while the next one arrives in the other slot.
    """
    if comm.rank != root:
        yield comm.Isend(sendbuf, root)
        return
    slots = [comm.scratch(sendbuf) for _ in range(min(2, comm.size - 1))]
    reduction = None
    mine = sendbuf
    for i in range(1, comm.size):
        got = slots[i % len(slots)]
        yield comm.Irecv(got, (root + i) % comm.size), reduction and op(*reduction)
        reduction = result, mine, got
        mine = result
    yield op(*reduction) if reduction else comm.copy(result, sendbuf)
    yield op.finish(result)


def allreduce(comm: Comm, sendbuf: Array, result: Array, op: Op) -> Algorithm:
    """result holds the reduction over all ranks: reduce to rank 0, then broadcast; sendbuf is only read."""
    yield from reduce(comm, sendbuf, result if comm.rank == 0 else None, op, 0)
    yield from broadcast(comm, result, 0)


def gather(comm: Comm, sendbuf: Array, result_chunks: OnRoot[Chunks], root: int) -> Algorithm:
    """On the root result_chunks, elsewhere None, holds every rank's sendbuf (there it may be result_chunks[root])."""
    if comm.rank != root:
        yield comm.Isend(sendbuf, root)
        return
    peers = [(root + i) % comm.size for i in range(1, comm.size)]
    messages = [comm.Irecv(result_chunks[peer], peer) for peer in peers]
    yield *messages, comm.copy(result_chunks[root], sendbuf)


def scatter(comm: Comm, chunks: OnRoot[Chunks], result: Array, root: int) -> Algorithm:
    """result holds the root's chunks[rank] (there it may be chunks[root]); elsewhere chunks is None."""
    if comm.rank != root:
        yield comm.Irecv(result, root)
        return
    peers = [(root + i) % comm.size for i in range(1, comm.size)]
    messages = [comm.Isend(chunks[peer], peer) for peer in peers]
    yield *messages, comm.copy(result, chunks[root])
