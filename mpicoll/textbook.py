"""The lecture's ring all-reduce, as short as it can be: read this first.

Two loops of size - 1 steps of Sendrecv. In the first, reduce-scatter, every rank passes a chunk to its right neighbour
and adds what arrives from the left to its own matching chunk; in the second, all-gather, the finished chunks go round.

Which chunk a rank starts with decides which one it ends up owning. Starting with the chunk of its left neighbour, rank
r owns chunk r after the first loop, as reduce-scatter promises. Starting with its own chunk, as the figure is often
drawn, rank r owns chunk r + 1: the all-reduce is still right, the name of its first half is not.

`mpicoll.algorithms.ring` is the same ring, cut into segments so that adding hides behind sending, never writing to what
is only to be read, and able to run blocking, nonblocking or recorded; its results have the same bits as these.
(CMU 11-868 L14, slides 34-45 describe it; Patarasuk & Yuan, JPDC 2009, prove that no all-reduce sends less.)
"""

import numpy as np


def ring_allreduce(mpi_comm, array, start=-1):
    """array, a one-dimensional NumPy array, holds the sum over all ranks.

    Args:
        mpi_comm: an mpi4py communicator.
        start: in the first step rank r sends chunk r + start; -1 is right for owners, 0 is the figure's.
    """
    rank, size = mpi_comm.rank, mpi_comm.size
    left, right = (rank - 1) % size, (rank + 1) % size
    chunks = np.array_split(array, size)
    got = np.empty_like(chunks[0])  # the first chunks are the longest

    for step in range(size - 1):  # reduce-scatter
        out, mine = chunks[(rank + start - step) % size], chunks[(rank + start - step - 1) % size]
        arrived = got[: len(mine)]
        mpi_comm.Sendrecv(out, right, recvbuf=arrived, source=left)
        mine += arrived

    for step in range(size - 1):  # all-gather
        out, into = chunks[(rank + start + 1 - step) % size], chunks[(rank + start - step) % size]
        mpi_comm.Sendrecv(out, right, recvbuf=into, source=left)
