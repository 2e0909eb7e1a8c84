"""The cost of `algorithms.hierarchical`: the sum over its levels, exact for a rank.

The time is that of every level in its largest node or on its longest rail, one after the other: an upper bound for one
part on equal links. Parts send no less, but use the links in the nodes and between them, which differ, side by side.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from ..algorithms.cut import even
from ..algorithms.hierarchical import Place, place
from . import linear, ring
from .model import Cost

Nodes: TypeAlias = Sequence[int] | None


def _wholes(chunks: Sequence[int], itemsize: int, parts: int) -> Iterator[int]:
    """The elements in each part of the buffer."""
    yield from even(sum(chunks) // itemsize, parts)


def _pieces(chunks: Sequence[int], itemsize: int, parts: int) -> Iterator[list[int]]:
    """The bytes of every rank's chunk that are in each part."""
    for part in zip(*(even(chunk // itemsize, parts) for chunk in chunks), strict=True):
        yield [count * itemsize for count in part]


def _in_node(at: Place, count: int, itemsize: int) -> list[int]:
    """The bytes of each rank of a node when `count` elements are cut for the rails."""
    return [share * itemsize for share in at.shares(count)]


def _across(at: Place, nbytes: int, itemsize: int) -> list[int]:
    """The bytes for each node when a share is cut once more."""
    return [count * itemsize for count in even(nbytes // itemsize, len(at.nodes))]


def _carried(at: Place, piece: Sequence[int]) -> list[list[int]]:
    """The bytes that cross on each rail for each node."""
    return [[sum(piece[rank] for rank in ranks) for ranks in rail] for rail in at.carried()]


def _packed(at: Place, piece: Sequence[int]) -> tuple[list[int], list[int], list[int]]:
    """The bytes of each rank's share in the node, what crosses for each node, and the chunks it crosses with."""
    rails = _carried(at, piece)
    shares = [sum(rail) for rail in rails] + [0] * (len(at.nodes[at.node]) - at.rails)
    return shares, rails[at.local] if at.rail else [], [piece[rank] for rank in at.served]


def allreduce(rank: int, chunks: Sequence[int], itemsize: int, root: int, nodes: Nodes = None, parts: int = 1) -> Cost:
    at, cost = place(rank, len(chunks), nodes), Cost()
    for count in _wholes(chunks, itemsize, parts):
        shares = _in_node(at, count, itemsize)
        cost += ring.reduce_scatter(at.local, shares, itemsize, 0) + ring.allgather(at.local, shares, itemsize, 0)
        if at.rail:
            cost += ring.allreduce(at.node, _across(at, shares[at.local], itemsize), itemsize, 0)
    return cost


def reduce_scatter(
    rank: int, chunks: Sequence[int], itemsize: int, root: int, nodes: Nodes = None, parts: int = 1
) -> Cost:
    at, cost = place(rank, len(chunks), nodes), Cost()
    for piece in _pieces(chunks, itemsize, parts):
        shares, crossing, served = _packed(at, piece)
        cost += ring.reduce_scatter(at.local, shares, itemsize, 0)
        cost += linear.scatter(at.local // at.rails, served, itemsize, 0)
        if at.rail:
            cost += ring.reduce_scatter(at.node, crossing, itemsize, 0)
    return cost


def allgather(rank: int, chunks: Sequence[int], itemsize: int, root: int, nodes: Nodes = None, parts: int = 1) -> Cost:
    at, cost = place(rank, len(chunks), nodes), Cost()
    for piece in _pieces(chunks, itemsize, parts):
        shares, crossing, served = _packed(at, piece)
        cost += linear.gather(at.local // at.rails, served, itemsize, 0)
        cost += ring.allgather(at.local, shares, itemsize, 0)
        if at.rail:
            cost += ring.allgather(at.node, crossing, itemsize, 0)
    return cost


def broadcast(rank: int, chunks: Sequence[int], itemsize: int, root: int, nodes: Nodes = None, parts: int = 1) -> Cost:
    at, source, cost = place(rank, len(chunks), nodes), place(root, len(chunks), nodes), Cost()
    for count in _wholes(chunks, itemsize, parts):
        shares = _in_node(at, count, itemsize)
        if at.node == source.node:
            cost += ring.broadcast(at.local, shares, itemsize, source.local)
        else:
            cost += ring.allgather(at.local, shares, itemsize, 0)
        if at.rail:
            cost += ring.broadcast(at.node, _across(at, shares[at.local], itemsize), itemsize, source.node)
    return cost


def _largest(size: int, nodes: Nodes) -> Place:
    """The Place of the first rank in the largest node."""
    at = place(0, size, nodes)
    return at._replace(node=max(range(len(at.nodes)), key=lambda node: len(at.nodes[node])))


def allreduce_path(chunks: Sequence[int], itemsize: int, nodes: Nodes = None, parts: int = 1) -> Cost:
    at, cost = _largest(len(chunks), nodes), Cost()
    for count in _wholes(chunks, itemsize, parts):
        shares = _in_node(at, count, itemsize)
        cost += ring.reduce_scatter_path(shares, itemsize) + ring.allgather_path(shares, itemsize)
        cost += ring.allreduce_path(_across(at, shares[0], itemsize), itemsize)
    return cost


def _longest(at: Place, piece: Sequence[int]) -> tuple[list[int], list[int], Cost]:
    """For the largest node: the longest share, once for each rank, the longest crossing, once for each node; and what
    a rank at most hands out, or is handed over."""
    rails = _carried(at, piece)
    share, crossing = max(map(sum, rails)), max(map(max, rails))
    beyond = max(sum(piece[rank] for rank in ranks[1:]) for rail in at.carried() for ranks in rail)
    handed = Cost(port_messages=len(at.served) - 1, port_bytes=beyond)
    return [share] * len(at.nodes[at.node]), [crossing] * len(at.nodes), handed


def reduce_scatter_path(chunks: Sequence[int], itemsize: int, nodes: Nodes = None, parts: int = 1) -> Cost:
    at, cost = _largest(len(chunks), nodes), Cost()
    for piece in _pieces(chunks, itemsize, parts):
        shares, crossing, handed = _longest(at, piece)
        cost += ring.reduce_scatter_path(shares, itemsize) + ring.reduce_scatter_path(crossing, itemsize) + handed
    return cost


def allgather_path(chunks: Sequence[int], itemsize: int, nodes: Nodes = None, parts: int = 1) -> Cost:
    at, cost = _largest(len(chunks), nodes), Cost()
    for piece in _pieces(chunks, itemsize, parts):
        shares, crossing, handed = _longest(at, piece)
        cost += handed + ring.allgather_path(crossing, itemsize) + ring.allgather_path(shares, itemsize)
    return cost


def broadcast_path(chunks: Sequence[int], itemsize: int, nodes: Nodes = None, parts: int = 1) -> Cost:
    """With the root in the largest node, and another as large."""
    at, cost = _largest(len(chunks), nodes), Cost()
    for count in _wholes(chunks, itemsize, parts):
        shares = _in_node(at, count, itemsize)
        cost += ring.broadcast_path(shares, itemsize)
        if len(at.nodes) > 1:
            crossing = _across(at, shares[0], itemsize)
            cost += ring.broadcast_path(crossing, itemsize) + ring.allgather_path(shares, itemsize)
    return cost
