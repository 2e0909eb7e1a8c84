"""The ring: every rank sends to its right neighbour and receives from its left, all links busy in every round.

Reduce-scatter of 4 ranks, chunk c of rank r is written c_r; each line is a step, each rank shows what it sends:

    rank 0         rank 1         rank 2         rank 3
    3_0            0_1            1_2            2_3            each rank sends the chunk of its left neighbour,
    2_03           3_01           0_12           1_23           adds its own part to what arrived and sends that on,
    1_023          2_013          3_012          0_123          and so on
    0_0123         1_0123         2_0123         3_0123         owner r holds chunk r, complete

All-gather passes the finished chunks on in size - 1 further steps. All-reduce is one after the other.

Cost, n bytes in all, p ranks, S segments: reduce_scatter (p-1)(S alpha + n/p beta) + n/(pS) gamma while the reduction
of a segment hides behind the transfer of the next; allgather (p-1)(alpha + n/p beta). Both send (p-1)/p n bytes a rank:
the least possible (Patarasuk & Yuan, JPDC 2009; MPI code of CMU 11-868 L14, slides 34-45).

Order of reduction: chunk c is x_c op (x_{c-1} op (... op (x_{c+2} op x_{c+1}))), ranks modulo p, computed once on its
way to the owner, so all ranks end with the same bits.
"""

from .cut import cut

SEGMENT_BYTES = 256 * 1024  # a segment and its two neighbours stay in a core's cache


def segment_count(chunks):
    """How many segments the chunks are cut into: about SEGMENT_BYTES in the largest chunk, at least 2."""
    return max(2, -(-max(chunk.nbytes for chunk in chunks) // SEGMENT_BYTES))


def reduce_scatter(comm, chunks, result, op, segments=None):
    """result holds chunk[rank] reduced over all ranks; chunks is only read (result may be chunks[rank]).

    Chunks are cut into S segments. In round i segment i arrives in slot i mod (S+1), while segment i-1 is reduced in
    its slot; it is sent on in round i+S. Of three neighbouring slots one is filled, one is reduced in and one is sent
    from: with two alternating slots a segment would arrive where another is still being sent from.
    """
    rank, size = comm.rank, comm.size
    left, right = (rank - 1) % size, (rank + 1) % size
    if size == 1:
        yield comm.copy(result, chunks[0])
        yield op.finish(result)
        return
    segments = segment_count(chunks) if segments is None else segments
    if segments < 2:
        raise ValueError(f"ring: segments is {segments}; with less than 2 there is no time to reduce what is sent on")
    pieces = [cut(chunk, segments) for chunk in chunks]
    longest = max((chunk[0] for chunk in pieces), key=len)
    slots = [comm.scratch(longest) for _ in range(2 if size == 2 else segments + 1)]
    results = cut(result, segments)
    rounds = (size - 1) * segments
    outgoing = pieces[left] + [None] * rounds  # what is sent in each round
    reduction = None
    for i in range(rounds):
        step, s = divmod(i, segments)
        mine = pieces[(rank - step - 2) % size][s]
        got = slots[i % len(slots)][: len(mine)]
        messages = comm.Isend(outgoing[i], right), comm.Irecv(got, left)
        yield *messages, reduction and op(*reduction)
        outgoing[i + segments] = got
        reduction = (results[s] if step == size - 2 else got), mine, got  # out = mine op got, a round later
    yield op(*reduction)
    yield op.finish(result)


def allgather(comm, sendbuf, result_chunks):
    """result_chunks holds every rank's sendbuf (which may be result_chunks[rank])."""
    rank, size = comm.rank, comm.size
    left, right = (rank - 1) % size, (rank + 1) % size
    out = sendbuf
    if size == 1:
        yield comm.copy(result_chunks[0], sendbuf)
    for step in range(size - 1):
        got = result_chunks[(rank - step - 1) % size]
        messages = comm.Isend(out, right), comm.Irecv(got, left)
        yield *messages, comm.copy(result_chunks[rank], sendbuf) if step == 0 else None
        out = got


def allreduce(comm, chunks, result_chunks, op, segments=None):
    """result_chunks holds the reduction over all ranks; chunks, cut alike, is only read (they may be the same)."""
    own = result_chunks[comm.rank]
    yield from reduce_scatter(comm, chunks, own, op, segments)
    yield from allgather(comm, own, result_chunks)
