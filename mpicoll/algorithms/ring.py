"""The ring: every rank sends to its right neighbour and receives from its left, all links busy in every round.

Reduce-scatter of 4 ranks, chunk c of rank r is written c_r; each line is a step, each rank shows what it sends:

    rank 0         rank 1         rank 2         rank 3
    3_0            0_1            1_2            2_3            each rank sends the chunk of its left neighbour,
    2_03           3_01           0_12           1_23           adds its own part to what arrived and sends that on,
    1_023          2_013          3_012          0_123          and so on
    0_0123         1_0123         2_0123         3_0123         owner r holds chunk r, complete

All-gather passes the finished chunks on in size - 1 further steps. All-reduce is one after the other.

Broadcast and reduce use the ring without the link that would close it, as a chain of vranks (counted from the root),
and cut the buffer into segments, so that one link carries a segment while the next link carries the one before:

    round 0    0 -> 1: segment 0
    round 1    0 -> 1: segment 1    1 -> 2: segment 0
    round 2    0 -> 1: segment 2    1 -> 2: segment 1    2 -> 3: segment 0        reduce: the arrows turned round

Cost, n bytes in all, p ranks, S segments: reduce_scatter (p-1)(S alpha + n/p beta) + n/(pS) gamma while the reduction
of a segment hides behind the transfer of the next; allgather (p-1)(alpha + n/p beta). Both send (p-1)/p n bytes a rank:
the least possible (Patarasuk & Yuan, JPDC 2009; MPI code of CMU 11-868 L14, slides 34-45). Broadcast
(p-2+S)(alpha + n/S beta): about n beta for long buffers, however many ranks there are (slides 19-28); reduce
(p-2+S)(alpha + n/S (beta + gamma)).

Order of reduction: chunk c is x_c op (x_{c-1} op (... op (x_{c+2} op x_{c+1}))), ranks modulo p, computed once on its
way to the owner, so all ranks end with the same bits; reduce is x_0 op (x_1 op (... op x_{p-1})) in vranks.
"""

from ..language import Algorithm, Array, Chunks, Comm, OnRoot, Op
from .cut import cut

SEGMENT_BYTES = 256 * 1024  # a segment and its two neighbours stay in a core's cache


def segment_count(segments: int | None, nbytes: int, least: int = 1) -> int:
    """How many segments `nbytes` bytes are cut into: `segments`, or if it is None about SEGMENT_BYTES in each.

    Raises:
        ValueError: segments is less than `least`.
    """
    if segments is None:
        return max(least, -(-nbytes // SEGMENT_BYTES))
    if segments < least:
        raise ValueError(f"ring: segments is {segments}; it must be at least {least}")
    return segments


def reduce_scatter(comm: Comm, chunks: Chunks, result: Array, op: Op, segments: int | None = None) -> Algorithm:
    """result holds chunk[rank] reduced over all ranks; chunks is only read (result may be chunks[rank]).

    Chunks are cut into S segments, at least 2: with one there is no time to reduce what is sent on. In round i segment
    i arrives in slot i mod (S+1), while segment i-1 is reduced in its slot; it is sent on in round i+S. Of three
    neighbouring slots one is filled, one is reduced in and one is sent from: with two alternating slots a segment would
    arrive where another is still being sent from.
    """
    rank, size = comm.rank, comm.size
    left, right = (rank - 1) % size, (rank + 1) % size
    if size == 1:
        yield comm.copy(result, chunks[0])
        yield op.finish(result)
        return
    segments = segment_count(segments, max(chunk.nbytes for chunk in chunks), least=2)
    pieces = [cut(chunk, segments) for chunk in chunks]
    longest = max((chunk[0] for chunk in pieces), key=len)
    slots = [comm.scratch(longest) for _ in range(2 if size == 2 else segments + 1)]
    results = cut(result, segments)
    rounds = (size - 1) * segments
    outgoing = list(pieces[left])  # what is sent, round by round
    reduction = None
    for i in range(rounds):
        step, s = divmod(i, segments)
        mine = pieces[(rank - step - 2) % size][s]
        got = slots[i % len(slots)][: len(mine)]
        messages = comm.Isend(outgoing[i], right), comm.Irecv(got, left)
        yield *messages, reduction and op(*reduction)
        outgoing.append(got)
        reduction = (results[s] if step == size - 2 else got), mine, got  # out = mine op got, a round later
    yield reduction and op(*reduction)
    yield op.finish(result)


def allgather(comm: Comm, sendbuf: Array, result_chunks: Chunks) -> Algorithm:
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


def allreduce(comm: Comm, chunks: Chunks, result_chunks: Chunks, op: Op, segments: int | None = None) -> Algorithm:
    """result_chunks holds the reduction over all ranks; chunks, cut alike, is only read (they may be the same)."""
    own = result_chunks[comm.rank]
    yield from reduce_scatter(comm, chunks, own, op, segments)
    yield from allgather(comm, own, result_chunks)


def broadcast(comm: Comm, buf: Array, root: int, segments: int | None = None) -> Algorithm:
    """buf holds what it holds on the root; it was passed on in segments, one arriving while the one before leaves."""
    rank, size = comm.rank, comm.size
    left, right = (rank - 1) % size, (rank + 1) % size
    segments = segment_count(segments, buf.nbytes)
    pieces = cut(buf, segments)
    for i in range(segments + 1):
        yield (
            comm.Irecv(pieces[i], left) if rank != root and i < segments else None,
            comm.Isend(pieces[i - 1], right) if right != root and i > 0 else None,
        )


def reduce(
    comm: Comm, sendbuf: Array, result: OnRoot[Array], op: Op, root: int, segments: int | None = None
) -> Algorithm:
    """On the root result holds the reduction over all ranks; sendbuf is only read (on the root it may be result).

    Elsewhere result is None. Segments arrive in two slots by turns and are reduced there: while one arrives, the one
    before is sent on from the other slot.
    """
    rank, size = comm.rank, comm.size
    left, right = (rank - 1) % size, (rank + 1) % size
    if size == 1:
        yield comm.copy(result, sendbuf)
        yield op.finish(result)
        return
    segments = segment_count(segments, sendbuf.nbytes)
    pieces = cut(sendbuf, segments)
    outgoing: list[Array] = pieces
    receives = right != root
    if receives:
        slots = comm.scratch(pieces[0]), comm.scratch(pieces[0])
        arriving = [slots[i % 2][: len(piece)] for i, piece in enumerate(pieces)]
        outgoing = cut(result, segments) if rank == root else arriving
    for i in range(segments + 1):
        yield (
            comm.Irecv(arriving[i], right) if receives and i < segments else None,
            comm.Isend(outgoing[i - 1], left) if rank != root and i > 0 else None,
        )
        if receives and i < segments:
            yield op(outgoing[i], pieces[i], arriving[i])
    if rank == root:
        yield op.finish(result)
