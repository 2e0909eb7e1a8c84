r"""Two binary trees, one for each half of the buffer: who is inner in one is a leaf in the other, so all ports work.

Both trees of 8 ranks. In the first a rank is where its number is in an infix walk, with rank 0 on top; the second is
the first with every rank moved down by one. Inner ranks have even places: for even p each rank is inner in exactly one
of the trees, for odd p rank p-1 is inner in both.

             0                        7
             |                        |
             4                        3
          /     \                  /     \
         2       6                1       5
        / \     / \              / \     / \
       1   3   5   7            0   2   4   6

Of every two segments, one of each half, that a rank gets from its two parents it passes one on, twice: to the children
that it has in one of the trees. All edges are coloured in two colours, so that the two on which a rank receives differ,
and the two on which it sends. Even steps use the one colour, odd steps the other: in no step does a port have more than
one message. (To wait for a segment of each half and then pass them on deadlocks: the trees turn each other's order
round.) Broadcast and reduce have one root, vrank 0: in the second tree it is no leaf, but above p-1.

Cost, n bytes, p ranks, S segments in each half: broadcast at most (2 ceil(lg p) + 2S - 1)(alpha + n/2S beta), which for
the best S is n beta + 2 lg p alpha + sqrt(8 alpha beta n lg p); reduce the same and gamma in each step; allreduce is a
reduce to the two roots and a broadcast, at most 2 (2 ceil(lg p) + 2S - 2)(alpha + n/2S beta) and half of these steps
n/2S gamma: about 2 n beta, however many ranks there are. (Sanders, Speck & Traeff, Parallel Computing 2009; the trees
as in NCCL 2.4.)

Order of reduction: x_0 op x_1 op ... op x_{p-1} in vranks, grouped as the trees and their colours say; computed once.
"""

import functools
import itertools
from typing import NamedTuple

from ..language import Algorithm, Array, Comm, OnRoot, Op
from . import ring
from .cut import cut


class Edge(NamedTuple):
    """Of tree 0 or 1, from vrank to vrank; the broadcast's first segment passes in `step`, the others every 2 steps."""

    tree: int
    parent: int
    child: int
    step: int


def _above(place: int, size: int) -> int:
    """The place above `place` in the infix tree of places 1 to size - 1 with 0 on top: its lowest bit moves up."""
    bit = place & -place
    above = (place ^ bit) | bit << 1
    return above if above < size else place ^ bit


@functools.lru_cache(maxsize=64)
def edges(size: int, one_root: bool) -> list[Edge]:
    """The edges of both trees, in two colours: the parity of `step`. Any two that leave or enter a vrank differ."""
    links = [(0, _above(child, size), child) for child in range(1, size)]
    links += [(1, (_above(child + 1, size) - 1) % size, child) for child in range(size - 1)]
    if one_root and size > 1:
        links[size - 1] = 1, 0, size - 1  # instead of the one into vrank 0
    into = {(tree, child): (tree, parent, child) for tree, parent, child in links}
    leaving: dict[int, list[tuple[int, int, int]]] = {parent: [] for _, parent, _ in links}
    for link in links:
        leaving[link[1]].append(link)
    colours: dict[tuple[int, int, int], int] = {}
    for start in links:
        walk = [(start, 0)]
        while walk:  # along the path, or circle, of edges of which one and the next share a sender or a receiver
            link, colour = walk.pop()
            if link not in colours:
                colours[link] = colour
                neighbours = *leaving[link[1]], into.get((1 - link[0], link[2]))
                walk += [(other, 1 - colour) for other in neighbours if other]

    @functools.cache
    def step(link: tuple[int, int, int]) -> int:
        above = into.get(link[:2])
        earliest = step(above) + 1 if above else 0
        return earliest + (earliest + colours[link]) % 2

    return [Edge(*link, step(link)) for link in links]


def segment_count(segments: int | None, nbytes: int) -> int:
    """How many segments a half of `nbytes` bytes is cut into: `segments`, or if it is None as many as by the ring."""
    if segments is not None and segments < 1:
        raise ValueError(f"double_tree: segments is {segments}; it must be at least 1")
    return ring.segment_count(segments, nbytes)


Step = list[tuple[int, Edge, int]]


def timetable(vrank: int, size: int, one_root: bool, segments: int) -> list[Step]:
    """The steps of a broadcast in which a vrank has messages: (step, edge, segment) of each."""
    own = [edge for edge in edges(size, one_root) if vrank in (edge.parent, edge.child)]
    moves = sorted((edge.step + 2 * s, edge, s) for edge in own for s in range(segments))
    return [list(step) for _, step in itertools.groupby(moves, key=lambda move: move[0])]


def _down(comm: Comm, buf: Array, root: int, one_root: bool, segments: int | None) -> Algorithm:
    """Each half of buf holds what it holds on the root of its tree."""
    size, vrank = comm.size, (comm.rank - root) % comm.size
    halves = cut(buf, 2)
    segments = segment_count(segments, halves[0].nbytes)
    pieces = [cut(half, segments) for half in halves]
    for step in timetable(vrank, size, one_root, segments):
        yield tuple(
            comm.Isend(pieces[edge.tree][s], (edge.child + root) % size)
            if edge.parent == vrank
            else comm.Irecv(pieces[edge.tree][s], (edge.parent + root) % size)
            for _, edge, s in step
        )


def _up(
    comm: Comm, sendbuf: Array, result: OnRoot[Array], op: Op, root: int, one_root: bool, segments: int | None
) -> Algorithm:
    """On the root of each tree its half of result holds the reduction: the broadcast's messages the other way round.

    Where result is None, a slot for each tree takes the segments one after the other. What arrives, arrives in another
    one, and a segment has been sent before the next one is reduced: one step takes both.
    """
    size, vrank = comm.size, (comm.rank - root) % comm.size
    halves = cut(sendbuf, 2)
    segments = segment_count(segments, halves[0].nbytes)
    so_far = [cut(half, segments) for half in halves]
    got = comm.scratch(so_far[0][0])
    if result is None:
        into = [[slot[: len(piece)] for piece in half] for half in so_far for slot in [comm.scratch(got)]]
    else:
        into = [cut(half, segments) for half in cut(result, 2)]
    for step in reversed(timetable(vrank, size, one_root, segments)):
        messages, reduction = [], None
        for _, edge, s in step:
            mine = so_far[edge.tree]
            if edge.child == vrank:
                messages.append(comm.Isend(mine[s], (edge.parent + root) % size))
            else:
                arriving = got[: len(mine[s])]
                messages.append(comm.Irecv(arriving, (edge.child + root) % size))
                operands = (arriving, mine[s]) if edge.child < vrank else (mine[s], arriving)
                reduction = into[edge.tree][s], *operands
                mine[s] = into[edge.tree][s]
        yield tuple(messages)
        if reduction:
            yield op(*reduction)


def broadcast(comm: Comm, buf: Array, root: int, segments: int | None = None) -> Algorithm:
    """buf holds what it holds on the root."""
    yield from _down(comm, buf, root, True, segments)


def reduce(
    comm: Comm, sendbuf: Array, result: OnRoot[Array], op: Op, root: int, segments: int | None = None
) -> Algorithm:
    """On the root result holds the reduction over all ranks; sendbuf is only read (on the root it may be result).

    Elsewhere result is None; the scratch memory is 3 segments.
    """
    if comm.size == 1:
        yield comm.copy(result, sendbuf)
    yield from _up(comm, sendbuf, result, op, root, True, segments)
    if comm.rank == root:
        yield op.finish(result)


def allreduce(comm: Comm, sendbuf: Array, result: Array, op: Op, segments: int | None = None) -> Algorithm:
    """result holds the reduction over all ranks; sendbuf is only read (it may be result).

    The halves are reduced to rank 0 and to rank p-1, the roots of the trees, and sent from there.
    """
    if comm.size == 1:
        yield comm.copy(result, sendbuf)
    yield from _up(comm, sendbuf, result, op, 0, False, segments)
    for top, half in zip((0, comm.size - 1), cut(result, 2), strict=True):
        yield op.finish(half) if comm.rank == top else None
    yield from _down(comm, result, 0, False, segments)
