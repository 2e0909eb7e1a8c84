"""Bruck's algorithms: chunks travel over distances that are powers of two, many in one message.

All-gather: before round k a rank has the 2^k chunks that begin with its own. It sends them to the rank 2^k to its left
and gets the next 2^k from the rank 2^k to its right; the last round completes the number.

    rank       0       1       2       3
    has        0       1       2       3
    round 0    01      12      23      30          0 <- 1 <- 2 <- 3 <- 0
    round 1    0123    1230    2301    3012        0 <-> 2    1 <-> 3

The chunks are where they belong from the beginning, not counted from the own one and rotated in the end; in exchange a
message that goes round the end of the buffer, such as 30, is put together in scratch memory and taken apart again.

All-to-all: the chunk for the rank i to the right travels 2^k in round k if bit k of i is set; all that do share a
message. i to the right of 4 ranks: 1 in round 0, 2 in round 1, 3 in both.

Cost, n bytes (allgather: of the result; alltoall: of one rank's input), p ranks: allgather ceil(lg p) alpha +
(p-1)/p n beta, the fewest rounds and the fewest bytes, for up to 2 (p-1) chunks of scratch memory, copied.
Alltoall ceil(lg p) alpha + n/p beta sum over bits k of #{i < p: bit k of i set}: about lg p / 2 times the bytes that
are necessary, so for small chunks; n bytes of scratch memory. (Bruck, Ho, Kipnis, Upfal & Weathersby, IEEE TPDS 1997.)
"""

from ..language import Algorithm, Array, Chunks, Comm
from .cut import joined, runs, same_length, split


def allgather(comm: Comm, sendbuf: Array, result_chunks: Chunks) -> Algorithm:
    """result_chunks holds every rank's sendbuf (which may be result_chunks[rank])."""
    rank, size = comm.rank, comm.size
    yield comm.copy(result_chunks[rank], sendbuf)
    have = 1
    while have < size:
        more = min(have, size - have)
        out, packed = joined(comm, runs(result_chunks, ((rank + i) % size for i in range(more))))
        got, unpacked = joined(comm, runs(result_chunks, ((rank + have + i) % size for i in range(more))))
        yield tuple(comm.copy(part, view) for part, view in packed)
        yield comm.Isend(out, (rank - have) % size), comm.Irecv(got, (rank + have) % size)
        yield tuple(comm.copy(view, part) for part, view in unpacked)
        have += more


def alltoall(comm: Comm, chunks: Chunks, result_chunks: Chunks) -> Algorithm:
    """result_chunks[i] holds rank i's chunk for this rank; chunks, other memory, is only read.

    What has come i ranks far waits where the chunk that comes i ranks far ends: in result_chunks[rank - i].

    Raises:
        ValueError: chunks differ in length; those of other ranks pass here, and a rank does not know their lengths.
    """
    rank, size = comm.rank, comm.size
    same_length("bruck: alltoall", [*chunks, *result_chunks])
    held = [chunks[(rank + i) % size] for i in range(size)]  # what travels i ranks in all
    homes = [result_chunks[(rank - i) % size] for i in range(size)]
    yield comm.copy(homes[0], held[0])
    distance = 1
    while distance < size:
        moving = [i for i in range(size) if i & distance]
        if distance == 1:
            out, got = (comm.scratch(*(held[i] for i in moving)) for _ in range(2))  # no later message is longer
        lengths = [len(held[i]) for i in moving]
        yield tuple(comm.copy(piece, held[i]) for piece, i in zip(split(out, lengths), moving, strict=True))
        length = sum(lengths)
        yield comm.Isend(out[:length], (rank + distance) % size), comm.Irecv(got[:length], (rank - distance) % size)
        yield tuple(comm.copy(homes[i], piece) for piece, i in zip(split(got, lengths), moving, strict=True))
        for i in moving:
            held[i] = homes[i]
        distance *= 2
