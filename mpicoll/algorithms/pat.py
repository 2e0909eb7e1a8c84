"""PAT, parallel aggregated trees: every rank's chunk goes down a binomial tree, and the trees share their messages.

The chunk of rank r reaches rank r + s by steps of the powers of two of which s is the sum, the longest first. All p
trees are the same but for the shift, so in each round every rank sends to the rank `distance` to its right, and one
message carries chunks of several trees. All-gather of 4 ranks, at most 2 chunks in a message:

    rank       0       1       2       3
    has        0       1       2       3
    round 0    02      13      20      31          distance 2: the own chunk
    round 1    0123    1230    2301    3012        distance 1: two chunks, s = 1 and s = 3

Far ranks come first, while a rank has little to send: p/2 ranks far goes one chunk, where Bruck's last message has p/2.
Reduce-scatter is the same backwards, arrows turned round: what comes from the children is added to the own part, and
the sum goes on to the parent.

A message carries at most A chunks, A a power of two. With q the power of two from p up, the first lg A rounds, of the
distances q/2, q/4, ..., q/A, double what a rank has until it has A chunks, from ranks that are q/A apart. These go down
A trees of q/A ranks each together, in a round for each edge, depth first.

Cost, n bytes in all, p ranks: lg A + min(q/A, p) - 1 rounds: ceil(lg p) with the greatest A, q/2, and p - 1 with A = 1;
(p-1)/p n bytes and, in reduce_scatter, (p-1)/p n gamma, with every A. Scratch memory: allgather 2 A chunks (none with
A = 1), reduce_scatter at most A (lg(q/A) + 2) - 1 chunks (lg q with A = 1), since of the ranks that are as far from
their parents only one is waiting for the rest of its tree. (Jeaugey, arXiv:2506.20252; NCCL 2.23.)

Order of reduction: chunk c is ((x_c op x_{c+1}) op (x_{c+2} op x_{c+3})) op ..., ranks modulo p, the tree's, with
every A; computed once on its way to the owner.
"""

from collections.abc import Sequence

from ..language import Algorithm, Array, Chunks, Comm, Op
from .cut import split

BUFFER_BYTES = 4 << 20  # of a message that is put together from several chunks; NCCL's buffer for a connection


def aggregation(aggregate: int | None, size: int, nbytes: int) -> int:
    """A: the largest power of two up to `aggregate`, or if it is None up to what makes a message of BUFFER_BYTES.

    With more than half of the power of two from `size` up no message would be longer. nbytes: of the longest chunk.

    Raises:
        ValueError: aggregate is less than 1.
    """
    if aggregate is None:
        aggregate = max(1, BUFFER_BYTES // max(1, nbytes))
    if aggregate < 1:
        raise ValueError(f"pat: aggregate is {aggregate}; it must be at least 1")
    half = 1 << (size - 1).bit_length() >> 1
    return 1 << max(1, min(aggregate, half)).bit_length() - 1


def rounds(size: int, aggregate: int) -> list[tuple[int, Sequence[int]]]:
    """The all-gather's rounds, each the distance of its message and how far, in all, its chunks have then come."""
    distance = 1 << (size - 1).bit_length()
    apart = distance // aggregate
    found: list[tuple[int, Sequence[int]]] = []
    while distance > apart:
        distance //= 2
        found.append((distance, range(distance, size, 2 * distance)))
    # Depth first, farthest child first; backwards each child, the nearest first, is complete just before its parent.
    below = sorted(range(1, min(apart, size)), key=lambda s: (s | (s - 1), -s), reverse=True)
    return found + [(s & -s, range(s, size, apart)) for s in below]


def _length(arrays: Sequence[Array]) -> int:
    return sum(map(len, arrays))


def _pieces(room: Array, like: Sequence[Array]) -> list[Array]:
    return split(room, [len(array) for array in like])


def allgather(comm: Comm, sendbuf: Array, result_chunks: Chunks, aggregate: int | None = None) -> Algorithm:
    """result_chunks holds every rank's sendbuf (which may be result_chunks[rank])."""
    rank, size = comm.rank, comm.size
    held = [result_chunks[(rank - s) % size] for s in range(size)]  # what has come s ranks far
    todo = rounds(size, aggregation(aggregate, size, max(chunk.nbytes for chunk in held)))
    messages = [([held[s - distance] for s in far], [held[s] for s in far]) for distance, far in todo]
    packed = [chunks for message in messages for chunks in message if len(chunks) > 1]
    out_room, in_room = (comm.scratch(*max(packed, key=_length)) if packed else sendbuf for _ in range(2))
    yield comm.copy(held[0], sendbuf)
    for (distance, _), (out, got) in zip(todo, messages, strict=True):
        right, left = (rank + distance) % size, (rank - distance) % size
        if len(out) == 1:
            yield comm.Isend(out[0], right), comm.Irecv(got[0], left)
        else:
            yield tuple(map(comm.copy, _pieces(out_room, out), out))
            yield comm.Isend(out_room[: _length(out)], right), comm.Irecv(in_room[: _length(got)], left)
            yield tuple(map(comm.copy, got, _pieces(in_room, got)))


def reduce_scatter(comm: Comm, chunks: Chunks, result: Array, op: Op, aggregate: int | None = None) -> Algorithm:
    """result holds chunk[rank] reduced over all ranks; chunks is only read (result may be chunks[rank])."""
    rank, size = comm.rank, comm.size
    held = [chunks[(rank - s) % size] for s in range(size)]  # what has s ranks to go, as far as it is reduced here
    if size == 1:
        yield comm.copy(result, held[0])
        yield op.finish(result)
        return
    most = aggregation(aggregate, size, max(chunk.nbytes for chunk in held))
    todo = rounds(size, most)
    longest: dict[int, list[Array]] = {}  # of the messages of a distance
    for distance, far in todo:
        out = [held[s] for s in far]
        longest[distance] = max(longest.get(distance, out), out, key=_length)
    # One room for each distance: before the next such message begins to be reduced, the last one has left. What goes
    # one rank far in a message of its own is this rank's own chunk.
    rooms = {distance: comm.scratch(*out) for distance, out in longest.items() if distance > 1 or most > 1}
    homes = {0: result}  # where what has s ranks to go is reduced: beside what leaves in the same message
    for distance, far in todo:
        if distance in rooms:
            homes.update(zip(far, _pieces(rooms[distance], [held[s] for s in far]), strict=True))
    arriving = comm.scratch(*max(([held[s - distance] for s in far] for distance, far in todo), key=_length))
    for distance, far in reversed(todo):
        out, message, nearer = [held[s] for s in far], held[far[0]], [s - distance for s in far]
        if len(far) > 1:
            message = rooms[distance][: _length(out)]
            yield tuple(comm.copy(homes[s], held[s]) for s in far)  # what was reduced is there already
        mine = [held[s] for s in nearer]
        got = arriving[: _length(mine)]
        yield comm.Isend(message, (rank - distance) % size), comm.Irecv(got, (rank + distance) % size)
        yield tuple(op(homes[s], held[s], piece) for s, piece in zip(nearer, _pieces(got, mine), strict=True))
        for s in nearer:
            held[s] = homes[s]
    yield op.finish(result)
