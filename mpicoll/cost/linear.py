"""The cost of `algorithms.linear`."""

from __future__ import annotations

from collections.abc import Sequence

from .model import Cost, all_at_once, one_by_one


def broadcast(rank: int, chunks: Sequence[int], itemsize: int, root: int) -> Cost:
    n, others = sum(chunks), len(chunks) - 1
    return all_at_once(others, others * n) if rank == root else one_by_one(n, receives=1)


def reduce(rank: int, chunks: Sequence[int], itemsize: int, root: int) -> Cost:
    """The root receives in one round after the other, since it reduces in order."""
    n, others = sum(chunks), len(chunks) - 1
    return one_by_one(n, receives=others, reduces=others) if rank == root else one_by_one(n, sends=1)


def allreduce(rank: int, chunks: Sequence[int], itemsize: int, root: int) -> Cost:
    return reduce(rank, chunks, itemsize, 0) + broadcast(rank, chunks, itemsize, 0)


def scatter(rank: int, chunks: Sequence[int], itemsize: int, root: int) -> Cost:
    own = chunks[rank]
    return all_at_once(len(chunks) - 1, sum(chunks) - own) if rank == root else one_by_one(own, receives=1)


def gather(rank: int, chunks: Sequence[int], itemsize: int, root: int) -> Cost:
    """The scatter's messages the other way round."""
    if rank == root:
        return scatter(rank, chunks, itemsize, root)._replace(messages=0, sent=0)
    return one_by_one(chunks[rank], sends=1)
