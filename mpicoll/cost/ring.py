"""The cost of `algorithms.ring`, whose ranks wait for one another: along the chain, or for the longest chunk."""

from __future__ import annotations

from collections.abc import Sequence

from ..algorithms.ring import segment_count
from .model import Cost


def _steps(chunks: Sequence[int], last: int) -> int:
    """The bytes that pass the port in p-1 steps, the first of which sends chunk `last` and receives the one before."""
    return sum(max(chunks[last - step], chunks[last - step - 1]) for step in range(len(chunks) - 1))


def reduce_scatter(rank: int, chunks: Sequence[int], itemsize: int, root: int, segments: int | None = None) -> Cost:
    """Every chunk but the own is sent on, every chunk but the left neighbour's is reduced, in segments."""
    rounds = (len(chunks) - 1) * segment_count(segments, max(chunks), least=2)
    n = sum(chunks)
    return Cost(rounds, rounds, n - chunks[rank], n - chunks[rank - 1], rounds, _steps(chunks, rank - 1))


def allgather(rank: int, chunks: Sequence[int], itemsize: int, root: int) -> Cost:
    """Every chunk is sent on but the right neighbour's, which arrives last."""
    size = len(chunks)
    sent = sum(chunks) - chunks[(rank + 1) % size]
    return Cost(size - 1, size - 1, sent, 0, size - 1, _steps(chunks, rank))


def allreduce(rank: int, chunks: Sequence[int], itemsize: int, root: int, segments: int | None = None) -> Cost:
    first = reduce_scatter(rank, chunks, itemsize, root, segments)
    return first + allgather(rank, chunks, itemsize, root)


def reduce_scatter_path(chunks: Sequence[int], itemsize: int, segments: int | None = None) -> Cost:
    """The longest chunk's way: wherever it is, both its ranks are busy with it, and nobody can be later than those."""
    steps, longest = len(chunks) - 1, max(chunks)
    rounds = steps * segment_count(segments, longest, least=2)
    return Cost(reduced=steps * longest, port_messages=rounds, port_bytes=steps * longest)


def allgather_path(chunks: Sequence[int], itemsize: int) -> Cost:
    steps = len(chunks) - 1
    return Cost(port_messages=steps, port_bytes=steps * max(chunks))


def allreduce_path(chunks: Sequence[int], itemsize: int, segments: int | None = None) -> Cost:
    return reduce_scatter_path(chunks, itemsize, segments) + allgather_path(chunks, itemsize)


def _pipeline(n: int, itemsize: int, segments: int | None) -> tuple[int, int]:
    """The number of segments of n bytes, and the bytes of the longest."""
    segments = segment_count(segments, n)
    return segments, -(-n // (segments * itemsize)) * itemsize


def _chain(n: int, itemsize: int, segments: int | None, receives: bool, sends: bool, reduces: bool) -> Cost:
    """All segments come in or go out in a round each; if both, the first comes in alone, one round before."""
    segments, longest = _pipeline(n, itemsize, segments)
    cost = Cost(segments, sends * segments, sends * n, reduces * n, segments, n)
    return cost + Cost(rounds=1, port_messages=1, port_bytes=longest) if receives and sends else cost


def broadcast(rank: int, chunks: Sequence[int], itemsize: int, root: int, segments: int | None = None) -> Cost:
    """All but the root receive the buffer, all but the root's left neighbour send it."""
    size, vrank = len(chunks), (rank - root) % len(chunks)
    if size == 1:
        return Cost()
    return _chain(sum(chunks), itemsize, segments, vrank > 0, vrank < size - 1, False)


def reduce(rank: int, chunks: Sequence[int], itemsize: int, root: int, segments: int | None = None) -> Cost:
    """All but the root's left neighbour receive and reduce the buffer, all but the root send it."""
    size, vrank = len(chunks), (rank - root) % len(chunks)
    if size == 1:
        return Cost()
    return _chain(sum(chunks), itemsize, segments, vrank < size - 1, vrank > 0, vrank < size - 1)


def broadcast_path(chunks: Sequence[int], itemsize: int, segments: int | None = None) -> Cost:
    """The first segment passes p-2 links before the last rank begins to receive: p-2+S rounds."""
    if len(chunks) == 1:
        return Cost()
    n, links = sum(chunks), len(chunks) - 2
    segments, longest = _pipeline(n, itemsize, segments)
    return Cost(port_messages=links + segments, port_bytes=links * longest + n)


def reduce_path(chunks: Sequence[int], itemsize: int, segments: int | None = None) -> Cost:
    """The broadcast's rounds, and every segment that arrives is reduced before it goes on."""
    path = broadcast_path(chunks, itemsize, segments)
    return path + Cost(reduced=path.port_bytes)
