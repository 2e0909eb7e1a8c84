"""The cost of `algorithms.recursive_halving`; in a reduce the root waits for all others."""

from __future__ import annotations

from collections.abc import Sequence

from ..algorithms.halving import exchanges, fold
from ..algorithms.recursive_halving import far_first, near_first
from . import halving
from .model import Cost, one_by_one


def allreduce(rank: int, chunks: Sequence[int], itemsize: int, root: int, near: bool = False) -> Cost:
    return halving.allreduce(rank, chunks, itemsize, near_first if near else far_first)


def reduce_scatter(rank: int, chunks: Sequence[int], itemsize: int, root: int, near: bool = False) -> Cost:
    return halving.reduce_scatter(rank, chunks, near_first if near else far_first)


def reduce(rank: int, chunks: Sequence[int], itemsize: int, root: int, near: bool = False) -> Cost:
    """After the halving a rank receives on its way back until it sends what it has, the root until it has all."""
    n, (acting, partner) = sum(chunks), fold(rank, len(chunks), root)
    if rank not in acting:
        return one_by_one(n, sends=1)
    vrank, vroot = acting.index(rank), acting.index(root)
    peer = near_first if near else far_first
    _, steps = exchanges(peer, rank, acting, halving.parts(chunks, itemsize, acting))
    cost = halving.halving(steps)
    if partner != rank:
        cost += one_by_one(n, receives=1, reduces=1)
    for other, keep, give in reversed(steps):
        if (vrank ^ vroot) & (vrank ^ acting.index(other)):
            return cost + one_by_one(keep.stop - keep.start, sends=1)
        cost += one_by_one(give.stop - give.start, receives=1)
    return cost


def reduce_path(chunks: Sequence[int], itemsize: int, near: bool = False) -> Cost:
    """Any root waits for a fold, the whole halving and the way back; of the ranks 0 has the largest parts."""
    return reduce(0, chunks, itemsize, 0, near)
