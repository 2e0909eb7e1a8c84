"""Circulant graphs: messages at the distances ceil(p/2), ceil(p/4), ..., 1; any p is as good as a power of two.

Reduce-scatter of 4 ranks, chunk c of ranks r and s is written c_rs; each rank shows what it sends:

    rank 0           rank 1           rank 2           rank 3
    23_0 to 2        30_1 to 3        01_2 to 0        12_3 to 1         skip 2
    1_02 to 1        2_13 to 2        3_02 to 3        0_13 to 0         skip 1
    0_0123           1_0123           2_0123           3_0123

Rank r counts the chunks from its own, r, r+1, ... (modulo p): of the first s' it keeps s = ceil(s'/2) and sends the
others, partial results, to r + s, for whom they are the first; then s' = s, until only its own is left. All-gather goes
the same way back; all-reduce is one after the other.

Broadcast goes round the skips from the smallest up, again and again, with a segment a round out of the root and a
segment a round into every other rank once the first has come; 3 segments, vranks (counted from the root):

    round 0    0 -> 1: segment 0                                               skip 1
    round 1    0 -> 2: segment 1    1 -> 3: segment 0                          skip 2
    round 2    0 -> 1: segment 2    1 -> 2: segment 0    2 -> 3: segment 1     skip 1
    round 3    0 -> 2: segment 2    1 -> 3: segment 2    3 -> 1: segment 1     skip 2

Cost, n bytes in all, p ranks: reduce_scatter ceil(lg p) alpha + (p-1)/p n (beta + gamma), allgather ceil(lg p) alpha +
(p-1)/p n beta, allreduce the sum of both: the fewest rounds and the fewest bytes at once. Broadcast
(S-1+ceil(lg p))(alpha + n/S beta): no way of sending S segments takes fewer rounds; best S = sqrt((ceil(lg p) - 1) n
beta/alpha).
(Traeff, "Optimal, non-pipelined reduce-scatter and allreduce algorithms", arXiv 2410.14234; "Round-optimal n-block
broadcast schedules in logarithmic time", arXiv 2312.11236.) A range of chunks that goes round the end of the buffer is
copied, so that it is one message; that is up to half of the buffer, and never both halves. Scratch: about n for a
reduce_scatter, n/2 more if it copies; n/2 for an allgather.

Order of reduction: a rank puts what it has before what it gets: (x_c op x_{c-2}) op (x_{c-1} op x_{c-3}) for chunk c of
4 ranks, ranks modulo p; completed by its owner, so all ranks end with the same bits.
"""

import functools
import itertools

from ..language import Algorithm, Array, Chunks, Comm, Op
from . import ring
from .cut import cut, joined, runs, split


@functools.cache
def skips(size: int) -> tuple[int, ...]:
    """1, ..., ceil(size/4), ceil(size/2), size."""
    return (1,) if size == 1 else (*skips((size + 1) // 2), size)


def reduce_scatter(comm: Comm, chunks: Chunks, result: Array, op: Op) -> Algorithm:
    """result holds chunk[rank] reduced over all ranks; chunks is only read (result may be chunks[rank])."""
    rank, size = comm.rank, comm.size
    if size == 1:
        yield comm.copy(result, chunks[0])
        yield op.finish(result)
        return
    around = [(rank + i) % size for i in range(size)]
    half = (size + 1) // 2  # around[half:] is sent in the first round; partial results are kept of the others
    ends = list(itertools.accumulate((len(chunks[i]) for i in around[:half]), initial=0))
    mine = runs(chunks, around[: size - half])
    out, copies = joined(comm, runs(chunks, around[half:]))
    got, partial = comm.scratch(*mine), comm.scratch(*(chunks[i] for i in around[:half]))
    for i in around[size - half : half]:  # one chunk if size is odd, of which nothing arrives in the first round
        copies.append((partial[ends[size - half] :], chunks[i]))
    yield tuple(comm.copy(part, chunk) for part, chunk in copies)
    for before, skip in itertools.pairwise(reversed(skips(size))):
        reduced = slice(0, ends[before - skip])
        if before < size:
            mine, out = [partial[reduced]], partial[ends[skip] : ends[before]]
        yield comm.Isend(out, (rank + skip) % size), comm.Irecv(got[reduced], (rank - skip) % size)
        into, lengths = result if skip == 1 else partial[reduced], [len(view) for view in mine]
        yield tuple(map(op, split(into, lengths), mine, split(got[reduced], lengths)))
    yield op.finish(result)


def allgather(comm: Comm, sendbuf: Array, result_chunks: Chunks) -> Algorithm:
    """result_chunks holds every rank's sendbuf (which may be result_chunks[rank])."""
    rank, size = comm.rank, comm.size
    if size == 1:
        yield comm.copy(result_chunks[0], sendbuf)
        return
    around = [(rank + i) % size for i in range(size)]
    half = (size + 1) // 2  # the last round receives around[half:]
    ends = list(itertools.accumulate((len(result_chunks[i]) for i in around[:half]), initial=0))
    near, near_copies = joined(comm, runs(result_chunks, around[:half]))
    far, far_copies = joined(comm, runs(result_chunks, around[half:]))
    yield comm.copy(near[: ends[1]], sendbuf)
    for skip, after in itertools.pairwise(skips(size)):
        arriving = near[ends[skip] : ends[after]] if after < size else far
        left, right = (rank - skip) % size, (rank + skip) % size
        messages = comm.Isend(near[: ends[after - skip]], left), comm.Irecv(arriving, right)
        yield *messages, *(comm.copy(chunk, part) for part, chunk in near_copies if after == size)
    yield tuple(comm.copy(chunk, part) for part, chunk in far_copies)


def allreduce(comm: Comm, chunks: Chunks, result_chunks: Chunks, op: Op) -> Algorithm:
    """result_chunks holds the reduction over all ranks; chunks, cut alike, is only read (they may be the same)."""
    own = result_chunks[comm.rank]
    yield from reduce_scatter(comm, chunks, own, op)
    yield from allgather(comm, own, result_chunks)


def segment_count(segments: int | None, nbytes: int) -> int:
    """As the ring's, of a broadcast.

    Raises:
        ValueError: segments is less than 1.
    """
    if segments is not None and segments < 1:
        raise ValueError(f"circulant: segments is {segments}; it must be at least 1")
    return ring.segment_count(segments, nbytes)


@functools.cache
def arrivals(size: int, vrank: int) -> tuple[int, ...]:
    """The segments that arrive at vrank, counted from the root, in the ceil(lg size) rounds of a phase.

    Round k is that of skips(size)[k]. From one phase to the next all numbers grow by ceil(lg size); a negative one is
    no segment yet. Of the numbers from 0 up, `first` alone arrives in the phase in which the root sends it, the others
    in the next one: so every segment arrives once, in a round of its own, from a vrank that has it. The root sends
    segment k in round k to skips(size)[k]; which other segments arrive when is what the search finds, among the paths
    of decreasing skips that end at the round's sender or shortly before it.
    """
    distances, goal = skips(size), size + vrank
    rounds = len(distances) - 1
    first, rest = rounds, vrank
    while rest:
        first = max(k for k in range(rounds) if distances[k] <= rest)
        rest -= distances[first]
    free = [k for k in range(rounds, -1, -1) if k != first]
    found: list[int] = []
    latest = 2 * size

    def search(at: int) -> None:
        nonlocal latest
        for k in [*free]:
            here, step = at + distances[k], len(found)
            if step < rounds and k in free and here < latest and here <= goal - distances[step]:
                if here <= goal - distances[step + 1]:
                    search(here)
                step = len(found)
                if step == rounds or at > goal - distances[step + 1]:
                    return
                free.remove(k)
                found.append(k)
                latest = here

    search(0)
    return tuple(first if k == rounds else k - rounds for k in found)


def transfers(size: int, vrank: int, segments: int) -> list[tuple[int | None, int | None, int]]:
    """The segments that vrank sends and receives in each of the segments - 1 + ceil(lg size) rounds, and the skip."""
    if size == 1:
        return []
    distances = skips(size)
    rounds, last = len(distances) - 1, segments - 1
    incoming = arrivals(size, vrank)
    outgoing = [arrivals(size, (vrank + skip) % size)[k] for k, skip in enumerate(distances[:-1])]
    found: list[tuple[int | None, int | None, int]] = []
    start = -last % rounds  # so that the last round is the last one of a phase
    for i in range(start, start + last + rounds):
        k, skip = i % rounds, distances[i % rounds]
        leaving, arriving = (numbers[k] + i - k - start for numbers in (outgoing, incoming))
        sends, receives = leaving >= 0 and vrank + skip != size, arriving >= 0 and vrank > 0
        found.append((min(leaving, last) if sends else None, min(arriving, last) if receives else None, skip))
    return found


def broadcast(comm: Comm, buf: Array, root: int, segments: int | None = None) -> Algorithm:
    """buf holds what it holds on the root."""
    rank, size = comm.rank, comm.size
    pieces = cut(buf, segment_count(segments, buf.nbytes))
    for leaving, arriving, skip in transfers(size, (rank - root) % size, len(pieces)):
        yield (
            None if leaving is None else comm.Isend(pieces[leaving], (rank + skip) % size),
            None if arriving is None else comm.Irecv(pieces[arriving], (rank - skip) % size),
        )
