"""The cost of `algorithms.circulant`."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from ..algorithms.circulant import segment_count, skips, transfers
from ..algorithms.cut import even
from .model import Cost


def _ranges(rank: int, chunks: Sequence[int]) -> Iterator[tuple[int, int]]:
    """The bytes of the chunks that each round reduces and sends on: the first ones, and the last ones of those left."""
    size = len(chunks)
    ends = list(itertools.accumulate((chunks[(rank + i) % size] for i in range(size)), initial=0))
    for skip, before in itertools.pairwise(skips(size)):
        yield ends[before - skip], ends[before] - ends[skip]


def reduce_scatter(rank: int, chunks: Sequence[int], itemsize: int, root: int) -> Cost:
    """Every chunk but the own is sent; as much as the own chunk and its neighbours have arrives and is reduced."""
    cost = Cost()
    for near, far in _ranges(rank, chunks):
        cost += Cost(1, 1, far, near, 1, max(near, far))
    return cost


def allgather(rank: int, chunks: Sequence[int], itemsize: int, root: int) -> Cost:
    """The messages of the reduce-scatter the other way round."""
    cost = reduce_scatter(rank, chunks, itemsize, root)
    return cost._replace(sent=cost.reduced, reduced=0)


def allreduce(rank: int, chunks: Sequence[int], itemsize: int, root: int) -> Cost:
    return reduce_scatter(rank, chunks, itemsize, root) + allgather(rank, chunks, itemsize, root)


def broadcast(rank: int, chunks: Sequence[int], itemsize: int, root: int, segments: int | None = None) -> Cost:
    """The root sends in every round, every other rank receives every segment once."""
    n, size = sum(chunks), len(chunks)
    lengths = [count * itemsize for count in even(n // itemsize, segment_count(segments, n))]
    cost = Cost()
    for leaving, arriving, _ in transfers(size, (rank - root) % size, len(lengths)):
        sent, received = (0 if segment is None else lengths[segment] for segment in (leaving, arriving))
        idle = leaving is arriving is None
        cost += Cost(1 - idle, int(leaving is not None), sent, 0, 1 - idle, max(sent, received))
    return cost


def broadcast_path(chunks: Sequence[int], itemsize: int, segments: int | None = None) -> Cost:
    """The root's rounds: a segment in each, the last segment, which is no longer than others, in ceil(lg p) of them."""
    if len(chunks) == 1:
        return Cost()
    n, more = sum(chunks), len(skips(len(chunks))) - 2
    segments = segment_count(segments, n)
    shortest = n // (segments * itemsize) * itemsize
    return Cost(port_messages=segments + more, port_bytes=n + more * shortest)
