"""The binomial tree: in each round twice as many ranks hold the data.

Broadcast of 8 ranks from root 0 (vrank = rank counted from the root); reduce runs the same edges backwards:

    round 0    0 -> 4
    round 1    0 -> 2    4 -> 6
    round 2    0 -> 1    2 -> 3    4 -> 5    6 -> 7

Cost, n bytes, p ranks: broadcast ceil(lg p)(alpha + n beta), reduce ceil(lg p)(alpha + n beta + n gamma); any p.
(Thakur, Rabenseifner & Gropp, IJHPCA 2005.)

Order of reduction: a rank reduces itself with its nearest child's subtree first: ((x_0 op x_1) op (x_2 op x_3)) op ...
in vranks; computed once, on the way to the root.
"""

from ..language import Algorithm, Array, Comm, OnRoot, Op


def _family(comm: Comm, root: int) -> tuple[int | None, list[int]]:
    """The parent (None at the root) and the children of this rank, the child with the largest subtree first."""
    vrank, size = (comm.rank - root) % comm.size, comm.size
    bit = vrank & -vrank or 1 << (size - 1).bit_length()  # the subtree of vrank holds less than this many ranks
    parent = None if vrank == 0 else (vrank - bit + root) % size
    distances = [1 << k for k in reversed(range(bit.bit_length() - 1))]
    return parent, [(vrank + d + root) % size for d in distances if vrank + d < size]


def broadcast(comm: Comm, buf: Array, root: int) -> Algorithm:
    """buf holds what it holds on the root."""
    parent, children = _family(comm, root)
    if parent is not None:
        yield comm.Irecv(buf, parent)
    for child in children:
        yield comm.Isend(buf, child)


def reduce(comm: Comm, sendbuf: Array, result: OnRoot[Array], op: Op, root: int) -> Algorithm:
    """On the root result holds the reduction over all ranks; sendbuf is only read (on the root it may be result).

    Elsewhere result is None: what the subtree adds up to is kept in scratch memory.
    """
    parent, children = _family(comm, root)
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
