"""Ranks in nodes: links in the node and between nodes, and what an algorithm takes on them.

Messages between ranks of one node take its wire, those between nodes the network's, through a way out that the ranks of
a node may share. The time is that of the simulation (`world.clock`), in which ranks wait for one another, for ports and
for the way out. The ranks' walks give a bound of it, quickly, and exactly what each kind of link carries (`crossed`).
"""

from __future__ import annotations

import collections
from collections.abc import Sequence
from typing import Any, NamedTuple

from ..links import Level, Link, Topology
from ..world.clock import simulate
from .model import Wire
from .walk import walk


class Crossed(NamedTuple):
    """Messages and bytes that a rank sends over links of one kind, and the seconds they take, one after the other."""

    messages: int = 0
    nbytes: int = 0
    seconds: float = 0


class Bound(NamedTuple):
    """What the walks of a few ranks tell.

    Attributes:
        seconds: no run takes less.
        messages, made: about how many messages all ranks send, and how many copies, reductions and views of arrays they
            make: what a simulation has to do.
        partners: the most other nodes to which the ranks of one node send, or from which they receive: 1 in a ring.
    """

    seconds: float
    messages: int
    made: int
    partners: int


WALKED = 8  # ranks of a node


class Machine(NamedTuple):
    """Where the ranks are, and what joins them.

    Attributes:
        nodes: the number of every rank's node.
        node, network: the wires between ranks of one node, and of two.
        shared: the ranks of a node share one way out and one way in, as with one NIC; else each has its own.
        gamma: seconds for a byte reduced.
    """

    nodes: tuple[int | str, ...]
    node: Wire
    network: Wire
    shared: bool
    gamma: float

    @property
    def topology(self) -> Topology:
        """The same for the world."""
        levels = [
            Level(link_of("node", self.node)),
            Level(link_of("network", self.network), 1 if self.shared else None),
        ]
        return Topology(levels, [(node,) for node in self.nodes])

    def simulate(
        self, collective: str, algorithm: str, counts: Sequence[Any], itemsize: int, root: int = 0, **options: Any
    ) -> float:
        """The simulated seconds; arguments as in `cost.of`."""
        timing = simulate(collective, algorithm, counts, itemsize, self.topology, self.gamma, root, **options)
        return timing.seconds

    def bound(
        self, collective: str, algorithm: str, counts: Sequence[Any], itemsize: int, root: int = 0, **options: Any
    ) -> Bound:
        """The walks of a few ranks of two nodes, the root's and the largest, without any waiting; arguments as in
        `cost.of`.

        A round takes as long as the busiest of a rank's ports, of which it has one for each class and direction, or its
        reductions. A shared way out takes its node's bytes one after the other.
        """
        largest = collections.Counter(self.nodes).most_common(1)[0][0]
        some = sorted({root, *self._some_of(self.nodes[root]), *self._some_of(largest)})
        walks = walk(collective, algorithm, some, counts, itemsize, root, **options)
        seconds: float = 0
        messages = made = 0
        partners: dict[tuple[int | str, bool], set[int | str]] = collections.defaultdict(set)
        out_and_in: dict[tuple[int | str, bool], float] = collections.defaultdict(int)  # of a node's shared way
        for rank, rounds in zip(some, walks, strict=True):
            here = self.nodes[rank]
            busy: float = 0
            for noted, reduced, also in rounds:
                made += also
                ports: list[float] = [0] * 4
                for peer, nbytes, sends in noted:
                    inside = self.nodes[peer] == here
                    alpha, beta = (self.node if inside else self.network).rates(nbytes)
                    ports[2 * inside + sends] += alpha + nbytes * beta
                    messages += sends
                    if not inside:
                        partners[here, sends].add(self.nodes[peer])
                        if self.shared:
                            out_and_in[here, sends] += nbytes * beta
                busy += max(*ports, reduced * self.gamma)
            seconds = max(seconds, busy)
        seconds, share = max(seconds, *out_and_in.values(), 0), len(counts) / len(some)
        most = max(map(len, partners.values()), default=0)
        return Bound(seconds, int(messages * share), int(made * share), most)

    def _some_of(self, node: int | str) -> list[int]:
        """Up to WALKED of the node's ranks, evenly spaced, the first and the last among them."""
        ranks = [rank for rank, other in enumerate(self.nodes) if other == node]
        few = min(WALKED, len(ranks))
        return [ranks[i * (len(ranks) - 1) // max(few - 1, 1)] for i in range(few)]


def link_of(name: str, wire: Wire) -> Link:
    """The wire as the world knows links."""
    return Link(name, kind=name, **wire._asdict())


def crossed(
    topology: Topology,
    collective: str,
    algorithm: str,
    counts: Sequence[Any],
    itemsize: int,
    root: int = 0,
    **options: Any,
) -> list[list[Crossed]]:
    """found[rank][level] is what the rank sends over each level of the links; the other arguments as in `cost.of`."""
    found = []
    for rank, rounds in enumerate(walk(collective, algorithm, range(len(counts)), counts, itemsize, root, **options)):
        levels = [Crossed()] * len(topology.levels)
        for peer, nbytes, sends in (noted for messages, *_ in rounds for noted in messages):
            if sends:
                level = topology.level(rank, peer)
                alpha, beta = topology.levels[level].link.rates(nbytes)
                messages, total, seconds = levels[level]
                levels[level] = Crossed(messages + 1, total + nbytes, seconds + alpha + nbytes * beta)
        found.append(levels)
    return found
