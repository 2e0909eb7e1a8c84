"""The cost of `algorithms.recursive_doubling`."""

from __future__ import annotations

from collections.abc import Sequence

from ..algorithms.recursive_halving import far_first
from . import halving
from .model import Cost, one_by_one


def allreduce(rank: int, chunks: Sequence[int], itemsize: int, root: int) -> Cost:
    """lg q exchanges of everything, q the largest power of two; a pair's even rank only hands over and gets back."""
    size, n = len(chunks), sum(chunks)
    doublings = size.bit_length() - 1
    paired = rank < 2 * (size - (1 << doublings))
    hands_over, gets_back = one_by_one(n, sends=1), one_by_one(n, receives=1)
    if paired and rank % 2 == 0:
        return hands_over + gets_back
    exchanges = one_by_one(n, doublings, doublings, doublings)
    return exchanges + hands_over + gets_back + Cost(reduced=n) if paired else exchanges


barrier = allreduce


def allgather(rank: int, chunks: Sequence[int], itemsize: int, root: int) -> Cost:
    return halving.allgather(rank, chunks, far_first)
