"""What recursive halving and swing cost: `algorithms.halving`, counted."""

from __future__ import annotations

from collections.abc import Sequence

from ..algorithms.cut import even
from ..algorithms.halving import Exchange, Peer, arranged, exchanges, fold
from .model import Cost, one_by_one


def parts(chunks: Sequence[int], itemsize: int, acting: Sequence[int]) -> list[int]:
    """Where, in bytes, the parts end that a buffer is cut into which is not cut for the ranks already."""
    ends = [0]
    for count in even(sum(chunks) // itemsize, len(acting)):
        ends.append(ends[-1] + count * itemsize)
    return ends


def halving(steps: Sequence[Exchange]) -> Cost:
    """What is kept arrives and is reduced, while the other half is sent."""
    cost = Cost()
    for _, keep, give in steps:
        kept, given = keep.stop - keep.start, give.stop - give.start
        cost += Cost(1, 1, given, kept, 1, max(kept, given))
    return cost


def doubling(steps: Sequence[Exchange]) -> Cost:
    """The messages of the halving the other way round."""
    cost = halving(steps)
    return cost._replace(sent=cost.reduced, reduced=0)


def slowest(chunks: Sequence[int], peer: Peer) -> tuple[int, int]:
    """The number of steps, and the bytes of the longest messages of all steps together."""
    acting, _ = fold(0, len(chunks))
    _, ends = arranged(chunks, peer, acting)
    steps, longest, half = 0, 0, len(acting) // 2
    while half:
        longest += max(ends[i + half] - ends[i] for i in range(0, len(acting), half))
        steps, half = steps + 1, half // 2
    return steps, longest


def allreduce(rank: int, chunks: Sequence[int], itemsize: int, peer: Peer) -> Cost:
    n, (acting, partner) = sum(chunks), fold(rank, len(chunks))
    folding = Cost() if partner == rank else one_by_one(n, sends=1) + one_by_one(n, receives=1)
    if rank not in acting:
        return folding
    _, steps = exchanges(peer, rank, acting, parts(chunks, itemsize, acting))
    return folding + Cost(reduced=0 if partner == rank else n) + halving(steps) + doubling(steps)


def reduce_scatter(rank: int, chunks: Sequence[int], peer: Peer) -> Cost:
    """Of a pair one hands over everything and gets its chunk back."""
    n, (acting, partner) = sum(chunks), fold(rank, len(chunks))
    if rank not in acting:
        return one_by_one(n, sends=1) + one_by_one(chunks[rank], receives=1)
    _, ends = arranged(chunks, peer, acting)
    cost = halving(exchanges(peer, rank, acting, ends)[1])
    if partner == rank:
        return cost
    return one_by_one(n, receives=1, reduces=1) + cost + one_by_one(chunks[partner], sends=1)


def allgather(rank: int, chunks: Sequence[int], peer: Peer) -> Cost:
    """Of a pair one hands over its chunk and gets everything back."""
    n, (acting, partner) = sum(chunks), fold(rank, len(chunks))
    if rank not in acting:
        return one_by_one(chunks[rank], sends=1) + one_by_one(n, receives=1)
    _, ends = arranged(chunks, peer, acting)
    cost = doubling(exchanges(peer, rank, acting, ends)[1])
    return cost if partner == rank else one_by_one(chunks[partner], receives=1) + cost + one_by_one(n, sends=1)
