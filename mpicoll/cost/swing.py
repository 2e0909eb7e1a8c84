"""The cost of `algorithms.swing`; folded, the ranks with large parts are not the same in all steps."""

from __future__ import annotations

from collections.abc import Sequence

from ..algorithms.swing import peer
from . import halving
from .model import Cost


def allreduce(rank: int, chunks: Sequence[int], itemsize: int, root: int) -> Cost:
    return halving.allreduce(rank, chunks, itemsize, peer)


def reduce_scatter(rank: int, chunks: Sequence[int], itemsize: int, root: int) -> Cost:
    return halving.reduce_scatter(rank, chunks, peer)


def reduce_scatter_path(chunks: Sequence[int], itemsize: int) -> Cost:
    """What a pair's acting rank does, if it has the largest part in every step."""
    n, (steps, longest) = sum(chunks), halving.slowest(chunks, peer)
    if len(chunks) == 1 << steps:
        return Cost(port_messages=steps, port_bytes=longest, reduced=longest)
    return Cost(port_messages=steps + 2, port_bytes=n + longest + max(chunks), reduced=n + longest)


def allgather(rank: int, chunks: Sequence[int], itemsize: int, root: int) -> Cost:
    return halving.allgather(rank, chunks, peer)


def allgather_path(chunks: Sequence[int], itemsize: int) -> Cost:
    """The way back of the reduce-scatter's."""
    return reduce_scatter_path(chunks, itemsize)._replace(reduced=0)
