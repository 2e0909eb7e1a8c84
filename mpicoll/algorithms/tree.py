"""The binomial tree: in each round twice as many ranks hold the data.

Broadcast of 8 ranks from root 0 (vrank = rank counted from the root); reduce runs the same edges backwards:

    round 0    0 -> 4
    round 1    0 -> 2    4 -> 6
    round 2    0 -> 1    2 -> 3    4 -> 5    6 -> 7

Scatter and gather use the same edges; a message has the chunks of all ranks below: 0 -> 4 those of 4, 5, 6 and 7. A
rank on their way keeps them in scratch memory, up to half of the buffer.

Cost, n bytes in all, p ranks: broadcast ceil(lg p)(alpha + n beta), reduce ceil(lg p)(alpha + n beta + n gamma),
scatter and gather ceil(lg p) alpha + (p-1)/p n beta; any p. (Thakur, Rabenseifner & Gropp, IJHPCA 2005.)

Order of reduction: a rank reduces itself with its nearest child's subtree first: ((x_0 op x_1) op (x_2 op x_3)) op ...
in vranks; computed once, on the way to the root.
"""

from ..language import Algorithm, Array, Chunks, Comm, OnRoot, Op
from .cut import cut, joined, runs, same_length


def family(comm: Comm, root: int) -> tuple[int | None, list[int]]:
    """The parent (None at the root) and the children of this rank, the child with the largest subtree first."""
    vrank, size = (comm.rank - root) % comm.size, comm.size
    bit = vrank & -vrank or 1 << (size - 1).bit_length()  # the subtree of vrank holds less than this many ranks
    parent = None if vrank == 0 else (vrank - bit + root) % size
    distances = [1 << k for k in reversed(range(bit.bit_length() - 1))]
    return parent, [(vrank + d + root) % size for d in distances if vrank + d < size]


def subtree(vrank: int, size: int) -> range:
    """The vranks of the subtree of which this one is the root."""
    return range(vrank, min(vrank + (vrank & -vrank or size), size))


def broadcast(comm: Comm, buf: Array, root: int) -> Algorithm:
    """buf holds what it holds on the root."""
    parent, children = family(comm, root)
    if parent is not None:
        yield comm.Irecv(buf, parent)
    for child in children:
        yield comm.Isend(buf, child)


def reduce(comm: Comm, sendbuf: Array, result: OnRoot[Array], op: Op, root: int) -> Algorithm:
    """On the root result holds the reduction over all ranks; sendbuf is only read (on the root it may be result).

    Elsewhere result is None: what the subtree adds up to is kept in scratch memory.
    """
    parent, children = family(comm, root)
    mine = sendbuf
    if children:
        got = comm.scratch(sendbuf)
        into = result if parent is None else comm.scratch(sendbuf)
        for child in reversed(children):
            yield comm.Irecv(got, child)
            yield op(into, mine, got)
            mine = into
    elif parent is None:
        yield comm.copy(result, sendbuf)
    if parent is None:
        yield op.finish(result)
    else:
        yield comm.Isend(mine, parent)


def allreduce(comm: Comm, sendbuf: Array, result: Array, op: Op) -> Algorithm:
    """result holds the reduction over all ranks: reduce to rank 0, then broadcast; sendbuf is only read."""
    yield from reduce(comm, sendbuf, result if comm.rank == 0 else None, op, 0)
    yield from broadcast(comm, result, 0)


def scatter(comm: Comm, chunks: OnRoot[Chunks], result: Array, root: int) -> Algorithm:
    """result holds the root's chunks[rank] (there it may be chunks[root]); elsewhere chunks is None.

    Raises:
        ValueError: on the root, chunks differ in length; a rank on their way could not know it.
    """
    size, vrank = comm.size, (comm.rank - root) % comm.size
    parent, children = family(comm, root)
    if parent is None:
        same_length("tree: scatter", [*chunks, result])
        held, shift = chunks, root  # held[vrank + shift]
    else:
        below = len(subtree(vrank, size))
        held, shift = cut(comm.scratch(*[result] * below) if below > 1 else result, below), -vrank
        yield comm.Irecv(held.whole, parent)
    for child in children:
        indices = [(v + shift) % len(held) for v in subtree((child - root) % size, size)]
        out, packed = joined(comm, runs(held, indices))
        yield tuple(comm.copy(part, view) for part, view in packed)
        yield comm.Isend(out, child)
    yield comm.copy(result, held[vrank + shift])


def gather(comm: Comm, sendbuf: Array, result_chunks: OnRoot[Chunks], root: int) -> Algorithm:
    """On the root result_chunks, elsewhere None, holds every rank's sendbuf (there it may be result_chunks[root]).

    Raises:
        ValueError: on the root, chunks differ in length; a rank on their way could not know it.
    """
    size, vrank = comm.size, (comm.rank - root) % comm.size
    parent, children = family(comm, root)
    if parent is None:
        same_length("tree: gather", [*result_chunks, sendbuf])
        held, shift = result_chunks, root  # held[vrank + shift]
    else:
        below = len(subtree(vrank, size))
        out = comm.scratch(*[sendbuf] * below) if below > 1 else sendbuf
        held, shift = cut(out, below), -vrank
    arriving = []
    for child in children:
        indices = [(v + shift) % len(held) for v in subtree((child - root) % size, size)]
        arriving.append((child, *joined(comm, runs(held, indices))))
    yield *(comm.Irecv(got, child) for child, got, _ in arriving), comm.copy(held[vrank + shift], sendbuf)
    yield tuple(comm.copy(view, part) for *_, packed in arriving for part, view in packed)
    if parent is not None:
        yield comm.Isend(out, parent)
