"""The cost of `algorithms.double_tree`: exact for a rank; the time is that of all steps, an upper bound.

In a step a port has at most one message in each direction, so it takes at most the time of the longest segment. The
number of steps is at most 2 ceil(lg p) + 2S - 1 with one root, 2 ceil(lg p) + 2S - 2 with each tree's own.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..algorithms.cut import even
from ..algorithms.double_tree import edges, segment_count, timetable
from .model import Cost


def _segments(chunks: Sequence[int], itemsize: int, segments: int | None) -> list[list[int]]:
    """The bytes of the segments of each half."""
    halves = even(sum(chunks) // itemsize, 2)
    segments = segment_count(segments, halves[0] * itemsize)
    return [[count * itemsize for count in even(half, segments)] for half in halves]


def _walk(
    vrank: int, chunks: Sequence[int], itemsize: int, one_root: bool, segments: int | None, up: bool = False
) -> Cost:
    """The steps of a broadcast in which the vrank has messages; up: of a reduction, the other way round."""
    nbytes = _segments(chunks, itemsize, segments)
    cost = Cost()
    for step in timetable(vrank, len(chunks), one_root, len(nbytes[0])):
        with_children = [nbytes[edge.tree][s] for _, edge, s in step if edge.parent == vrank]
        with_parents = [nbytes[edge.tree][s] for _, edge, s in step if edge.child == vrank]
        sent, received = (with_parents, with_children) if up else (with_children, with_parents)
        longer = max(sum(sent), sum(received))
        cost += Cost(1, len(sent), sum(sent), sum(received) if up else 0, 1, longer)
    return cost


def broadcast(rank: int, chunks: Sequence[int], itemsize: int, root: int, segments: int | None = None) -> Cost:
    return _walk((rank - root) % len(chunks), chunks, itemsize, True, segments)


def reduce(rank: int, chunks: Sequence[int], itemsize: int, root: int, segments: int | None = None) -> Cost:
    return _walk((rank - root) % len(chunks), chunks, itemsize, True, segments, up=True)


def allreduce(rank: int, chunks: Sequence[int], itemsize: int, root: int, segments: int | None = None) -> Cost:
    up = _walk(rank, chunks, itemsize, False, segments, up=True)
    return up + _walk(rank, chunks, itemsize, False, segments)


def _path(chunks: Sequence[int], itemsize: int, one_root: bool, segments: int | None) -> Cost:
    """All steps, as if the longest segment passed in each."""
    if len(chunks) == 1:
        return Cost()
    nbytes = _segments(chunks, itemsize, segments)
    steps = max(edge.step for edge in edges(len(chunks), one_root)) + 2 * len(nbytes[0]) - 1
    return Cost(port_messages=steps, port_bytes=steps * nbytes[0][0])


def broadcast_path(chunks: Sequence[int], itemsize: int, segments: int | None = None) -> Cost:
    return _path(chunks, itemsize, True, segments)


def reduce_path(chunks: Sequence[int], itemsize: int, segments: int | None = None) -> Cost:
    """What arrives in a step is reduced before the next."""
    path = broadcast_path(chunks, itemsize, segments)
    return path + Cost(reduced=path.port_bytes)


def allreduce_path(chunks: Sequence[int], itemsize: int, segments: int | None = None) -> Cost:
    up = _path(chunks, itemsize, False, segments)
    return up + Cost(reduced=up.port_bytes) + up
