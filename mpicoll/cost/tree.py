"""The cost of `algorithms.tree`."""

from __future__ import annotations

from collections.abc import Sequence

from .model import Cost, one_by_one


def _children(vrank: int, size: int) -> int:
    """How many children a rank of the binomial tree has: one at each power of two below its lowest bit."""
    reach = vrank & -vrank or size
    return (min(reach, size - vrank) - 1).bit_length()


def broadcast(rank: int, chunks: Sequence[int], itemsize: int, root: int) -> Cost:
    """One round to receive the whole buffer, except on the root, and one for each child to send it."""
    vrank, n = (rank - root) % len(chunks), sum(chunks)
    children = _children(vrank, len(chunks))
    return one_by_one(n, receives=int(vrank > 0)) + one_by_one(n, sends=children)


def reduce(rank: int, chunks: Sequence[int], itemsize: int, root: int) -> Cost:
    """The broadcast's edges backwards: what each child sends is reduced, and the sum is sent to the parent."""
    vrank, n = (rank - root) % len(chunks), sum(chunks)
    children = _children(vrank, len(chunks))
    return one_by_one(n, receives=children, reduces=children) + one_by_one(n, sends=int(vrank > 0))


def allreduce(rank: int, chunks: Sequence[int], itemsize: int, root: int) -> Cost:
    return reduce(rank, chunks, itemsize, 0) + broadcast(rank, chunks, itemsize, 0)
