"""Pairwise exchange: in step k rank r sends to rank r + k what is meant for it, and receives from rank r - k.

    rank      0             1             2             3
    step 1    to 1, of 3    to 2, of 0    to 3, of 1    to 0, of 2
    step 2    to 2, of 2    to 3, of 3    to 0, of 0    to 1, of 1
    step 3    to 3, of 1    to 0, of 2    to 1, of 3    to 2, of 0

Nothing is forwarded, so every byte crosses one link; every step is a permutation, so every port carries one message.
Where ranks share memory a byte is read where it was written, once by each.

Cost, n bytes of one rank's input (of all, gathered), p ranks: alltoall and allgather (p-1) alpha + (p-1)/p n beta, the
fewest bytes possible; reduce_scatter the same and up to (p-1)/p n gamma, which hide behind the transfers; allreduce is
reduce_scatter and allgather. (Thakur, Rabenseifner & Gropp, IJHPCA 2005.)

Order of reduction: chunk c is ((x_c op x_{c-1}) op x_{c-2}) op ... op x_{c+1}, ranks modulo p, computed by its owner.
"""

from ..language import Algorithm, Array, Chunks, Comm, Op


def alltoall(comm: Comm, chunks: Chunks, result_chunks: Chunks) -> Algorithm:
    """result_chunks[i] holds rank i's chunk for this rank; chunks, other memory, is only read."""
    rank, size = comm.rank, comm.size
    if size == 1:
        yield comm.copy(result_chunks[0], chunks[0])
    for step in range(1, size):
        dest, source = (rank + step) % size, (rank - step) % size
        messages = comm.Isend(chunks[dest], dest), comm.Irecv(result_chunks[source], source)
        yield *messages, comm.copy(result_chunks[rank], chunks[rank]) if step == 1 else None


def reduce_scatter(comm: Comm, chunks: Chunks, result: Array, op: Op) -> Algorithm:
    """result holds chunk[rank] reduced over all ranks; chunks is only read (result may be chunks[rank]).

    One contribution is reduced while the next one arrives in the other slot.
    """
    rank, size = comm.rank, comm.size
    slots = [comm.scratch(result) for _ in range(min(2, size - 1))]
    reduction = None
    mine = chunks[rank]
    for step in range(1, size):
        dest, source = (rank + step) % size, (rank - step) % size
        got = slots[step % len(slots)]
        messages = comm.Isend(chunks[dest], dest), comm.Irecv(got, source)
        yield *messages, reduction and op(*reduction)
        reduction = result, mine, got
        mine = result
    yield op(*reduction) if reduction else comm.copy(result, chunks[rank])
    yield op.finish(result)


def allgather(comm: Comm, sendbuf: Array, result_chunks: Chunks) -> Algorithm:
    """result_chunks holds every rank's sendbuf (which may be result_chunks[rank])."""
    rank, size = comm.rank, comm.size
    if size == 1:
        yield comm.copy(result_chunks[0], sendbuf)
    for step in range(1, size):
        dest, source = (rank + step) % size, (rank - step) % size
        messages = comm.Isend(sendbuf, dest), comm.Irecv(result_chunks[source], source)
        yield *messages, comm.copy(result_chunks[rank], sendbuf) if step == 1 else None


def allreduce(comm: Comm, chunks: Chunks, result_chunks: Chunks, op: Op) -> Algorithm:
    """result_chunks holds the reduction over all ranks; chunks, cut alike, is only read (they may be the same)."""
    own = result_chunks[comm.rank]
    yield from reduce_scatter(comm, chunks, own, op)
    yield from allgather(comm, own, result_chunks)
