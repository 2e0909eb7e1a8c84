"""Scatter and all-gather: the root deals out the buffer in p pieces, and a ring passes all of them round.

4 vranks, counted from the root, and 4 pieces; a line is a round, and shows what is sent:

    vrank      0              1              2              3
    scatter    23 to 2
               1 to 1                        3 to 3
    ring       0 to 1         1 to 2         2 to 3
               3 to 1         0 to 2         1 to 3                     nothing is sent to the root: it has everything
               2 to 1         3 to 2         0 to 3

The scatter is down the binomial tree, and what is for the ranks below a rank comes in one message. The pieces are
counted as the vranks, so a message is one part of the buffer and needs no other memory.

Cost, n bytes, p ranks: (ceil(lg p) + p - 1) alpha + 2 (p-1)/p n beta. For long buffers: twice the least possible,
whatever p, without the segments of a pipeline. (Van de Geijn; Thakur, Rabenseifner & Gropp, IJHPCA 2005.)
"""

from ..language import Algorithm, Array, Comm
from .cut import cut, runs
from .tree import family, subtree


def broadcast(comm: Comm, buf: Array, root: int) -> Algorithm:
    """buf holds what it holds on the root, which only reads it."""
    rank, size, vrank = comm.rank, comm.size, (comm.rank - root) % comm.size
    left, right = (rank - 1) % size, (rank + 1) % size
    pieces = cut(buf, size)
    parent, children = family(comm, root)
    if parent is not None:
        (part,) = runs(pieces, subtree(vrank, size))
        yield comm.Irecv(part, parent)
    for child in children:
        (part,) = runs(pieces, subtree((child - root) % size, size))
        yield comm.Isend(part, child)
    for step in range(size - 1):
        yield (
            comm.Isend(pieces[(vrank - step) % size], right) if right != root else None,
            comm.Irecv(pieces[(vrank - step - 1) % size], left) if rank != root else None,
        )
