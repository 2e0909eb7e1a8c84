"""Two levels: what crosses between nodes is cut among their ranks, and each rank crosses on a rail of its own.

All-reduce of 2 nodes with 3 ranks each; rail i joins the ranks number i of all nodes:

    node 0:  0   1   2        level 0    reduce-scatter in the node: rank number i holds third i, reduced over its node
    node 1:  3   4   5        level 1    all-reduce across nodes on every rail: 0 and 3, 1 and 4, 2 and 5
                              level 2    all-gather in the node

Reduce-scatter and all-gather cross on rail i with the chunks of the ranks number i. In the buffer these lie apart: a
reduce-scatter first packs them, rail by rail, into scratch memory for all of it, so that they are one message to each
rank; an all-gather unpacks. Broadcast fills the root's node, then every rail carries its share to the other nodes, and
they gather.

Nodes need not have equally many ranks, nor ranks in a row. There are m rails, as many as the smallest node has ranks.
In a larger node the ranks beyond own nothing between the levels and do not cross; in a reduce-scatter or all-gather the
rank number i also crosses with the chunks of numbers i+m, i+2m, ... of its node.

With k parts the buffer is cut into so many, and level l of part i runs beside level l+1 of part i-1, each level on its
own lane. So links in the node and between nodes are busy at once where a rank has a port for each; on one port only a
broadcast gains, whose levels are other ranks' work.

Cost, n bytes, q nodes of m ranks, S segments: allreduce (S+1)(m-1 + q-1) alpha + 2((m-1)/m n + (q-1)/q n/m) beta and
half of these bytes gamma; reduce_scatter S(m-1 + q-1) alpha and half of these bytes beta + gamma, allgather
(m-1 + q-1) alpha and half of these bytes beta, both a local copy of n, too; broadcast about n beta in the root's node,
n/m beta across and (m-1)/m n beta in the others, in m-2+S + q-2+S + m-1 rounds. k parts: k times the alphas. A rank
crosses with 2(q-1)/q n/m bytes in an all-reduce, with half of that in a reduce-scatter or all-gather and with n/m in a
broadcast. (Cho et al., "BlueConnect", IBM J. R&D 2019.)

Order of reduction: the ring's in the node, by numbers there, then the ring's across nodes; computed once.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from ..language import Algorithm, Array, Chunks, Comm, Op
from . import linear, ring
from .cut import cut, even, split


class Place(NamedTuple):
    """Where a rank is: in node number `node` of `nodes`, which lists the ranks of each, and there number `local`."""

    nodes: list[list[int]]
    node: int
    local: int

    @property
    def here(self) -> list[int]:
        """The ranks of the own node."""
        return self.nodes[self.node]

    @property
    def rails(self) -> int:
        return min(map(len, self.nodes))

    @property
    def rail(self) -> list[int] | None:
        """The ranks of this rank's rail, or None if it has none."""
        return [ranks[self.local] for ranks in self.nodes] if self.local < self.rails else None

    @property
    def served(self) -> list[int]:
        """The ranks of the node whose chunks rank number `local % rails` crosses with: its own and those beyond."""
        return self.here[self.local % self.rails :: self.rails]

    def shares(self, count: int) -> tuple[int, ...]:
        """`count` elements cut for the rails; one entry for each rank of the node."""
        return even(count, self.rails) + (0,) * (len(self.here) - self.rails)

    def carried(self) -> list[list[list[int]]]:
        """carried()[i][j]: the ranks of node j whose chunks cross on rail i."""
        rails = self.rails
        return [[ranks[i::rails] for ranks in self.nodes] for i in range(rails)]


def place(rank: int, size: int, nodes: Sequence[int] | None) -> Place:
    """The Place of a rank, where nodes[r] is any number for the node of rank r; None: all ranks are in one node.

    Raises:
        ValueError: nodes has another length than `size`.
    """
    if nodes is None:
        return Place([list(range(size))], 0, rank)
    if len(nodes) != size:
        raise ValueError(f"hierarchical: nodes has {len(nodes)} entries for {size} ranks; give every rank's node")
    members: dict[int, list[int]] = {}
    for r, node in enumerate(nodes):
        members.setdefault(node, []).append(r)
    return Place(list(members.values()), list(members).index(nodes[rank]), members[nodes[rank]].index(rank))


Levels: TypeAlias = Sequence[Callable[[Comm], Algorithm | None]]  # those of one part; None: nothing to do for this rank


def _pipeline(comm: Comm, parts: Sequence[Levels]) -> Algorithm:
    """All levels of all parts have run, each on its own lane, beside the level before with the next part."""
    if len(parts) == 1:
        for level in parts[0]:
            yield from level(comm) or ()
        return
    depth = len(parts[0])
    for wave in range(len(parts) + depth - 1):
        yield tuple(parts[wave - k][k](comm.lane(k)) for k in range(depth) if 0 <= wave - k < len(parts))


def _in_turn(*algorithms: Algorithm) -> Algorithm:
    for algorithm in algorithms:
        yield from algorithm


def _copies(comm: Comm, to: Sequence[Array], arrays: Sequence[Array]) -> Algorithm:
    yield tuple(comm.copy(out, array) for out, array in zip(to, arrays, strict=True))


def _cut(array: Array, parts: int) -> Chunks:
    """The array's views in so many parts."""
    if parts < 1:
        raise ValueError(f"hierarchical: parts is {parts}; it must be at least 1")
    return cut(array, parts)


def allreduce(
    comm: Comm, sendbuf: Array, result: Array, op: Op, nodes: Sequence[int] | None = None, parts: int = 1
) -> Algorithm:
    """result holds the reduction over all ranks; sendbuf is only read (it may be result)."""
    at = place(comm.rank, comm.size, nodes)
    pairs = zip(_cut(sendbuf, parts), _cut(result, parts), strict=True)
    yield from _pipeline(comm, [_allreduce(at, *pair, op) for pair in pairs])


def _allreduce(at: Place, sendbuf: Array, result: Array, op: Op) -> Levels:
    here, rail = at.here, at.rail
    sent, shares = (split(array, at.shares(len(array))) for array in (sendbuf, result))
    own = shares[at.local]
    crossing = cut(own, len(at.nodes))
    return (
        lambda comm: ring.reduce_scatter(comm.group(here), sent, own, op.partial),
        lambda comm: ring.allreduce(comm.group(rail), crossing, crossing, op) if rail else None,
        lambda comm: ring.allgather(comm.group(here), own, shares),
    )


class _Packed(NamedTuple):
    """Scratch memory for a piece of every chunk, rail by rail, and for each rail node by node.

    Attributes:
        pieces: by rank.
        shares: those of each rail together, and an empty one for each rank of the node beyond.
        crossing: the own share, cut by nodes.
        served: the pieces in it for the ranks of this node; None if this rank has no rail.
    """

    pieces: Chunks
    shares: Chunks
    crossing: Chunks
    served: Chunks | None


def _pack(comm: Comm, pieces: Chunks, at: Place) -> _Packed:
    """Memory for these pieces, one of each rank's chunk."""
    carried = at.carried()
    rails = [[rank for ranks in rail for rank in ranks] for rail in carried]
    order = [rank for rail in rails for rank in rail]
    memory = comm.scratch(*pieces)
    packed = dict(zip(order, split(memory, [len(pieces[rank]) for rank in order]), strict=True))
    beyond = [0] * (len(at.here) - at.rails)
    shares = split(memory, [sum(len(pieces[rank]) for rank in rail) for rail in rails] + beyond)
    if not at.rail:
        return _Packed([packed[rank] for rank in range(comm.size)], shares, [], None)
    crossing = split(shares[at.local], [sum(len(pieces[rank]) for rank in ranks) for ranks in carried[at.local]])
    served = [packed[rank] for rank in at.served]
    return _Packed([packed[rank] for rank in range(comm.size)], shares, crossing, served)


def reduce_scatter(
    comm: Comm, chunks: Chunks, result: Array, op: Op, nodes: Sequence[int] | None = None, parts: int = 1
) -> Algorithm:
    """result holds chunk[rank] reduced over all ranks; chunks is only read (result may be chunks[rank]).

    The chunks are packed into as much scratch memory.
    """
    at = place(comm.rank, comm.size, nodes)
    pieces = zip(*(_cut(chunk, parts) for chunk in chunks), strict=True)
    pairs = zip(pieces, _cut(result, parts), strict=True)
    yield from _pipeline(comm, [_reduce_scatter(at, piece, _pack(comm, piece, at), out, op) for piece, out in pairs])


def _reduce_scatter(at: Place, pieces: Chunks, packed: _Packed, result: Array, op: Op) -> Levels:
    here, rail, served = at.here, at.rail, at.served
    shares, crossing = packed.shares, packed.crossing
    return (
        lambda comm: _in_turn(
            _copies(comm, packed.pieces, pieces),
            ring.reduce_scatter(comm.group(here), shares, shares[at.local], op.partial),
        ),
        lambda comm: ring.reduce_scatter(comm.group(rail), crossing, crossing[at.node], op) if rail else None,
        lambda comm: linear.scatter(comm.group(served), packed.served, result, 0),
    )


def allgather(
    comm: Comm, sendbuf: Array, result_chunks: Chunks, nodes: Sequence[int] | None = None, parts: int = 1
) -> Algorithm:
    """result_chunks holds every rank's sendbuf (which may be result_chunks[rank]); as much scratch memory is used."""
    at = place(comm.rank, comm.size, nodes)
    pieces = zip(*(_cut(chunk, parts) for chunk in result_chunks), strict=True)
    pairs = zip(_cut(sendbuf, parts), pieces, strict=True)
    yield from _pipeline(comm, [_allgather(at, sent, piece, _pack(comm, piece, at)) for sent, piece in pairs])


def _allgather(at: Place, sendbuf: Array, pieces: Chunks, packed: _Packed) -> Levels:
    here, rail, served = at.here, at.rail, at.served
    shares, crossing = packed.shares, packed.crossing
    return (
        lambda comm: linear.gather(comm.group(served), sendbuf, packed.served, 0),
        lambda comm: ring.allgather(comm.group(rail), crossing[at.node], crossing) if rail else None,
        lambda comm: _in_turn(
            ring.allgather(comm.group(here), shares[at.local], shares), _copies(comm, pieces, packed.pieces)
        ),
    )


def broadcast(comm: Comm, buf: Array, root: int, nodes: Sequence[int] | None = None, parts: int = 1) -> Algorithm:
    """buf holds what it holds on the root."""
    at, source = place(comm.rank, comm.size, nodes), place(root, comm.size, nodes)
    yield from _pipeline(comm, [_broadcast(at, source, part) for part in _cut(buf, parts)])


def _broadcast(at: Place, source: Place, buf: Array) -> Levels:
    here, rail, filled = at.here, at.rail, at.node == source.node
    shares = split(buf, at.shares(len(buf)))
    own = shares[at.local]
    return (
        lambda comm: ring.broadcast(comm.group(here), buf, source.local) if filled else None,
        lambda comm: ring.broadcast(comm.group(rail), own, source.node) if rail else None,
        lambda comm: None if filled else ring.allgather(comm.group(here), own, shares),
    )
