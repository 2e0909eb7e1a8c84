"""What an all-reduce costs each of N GPUs on given links.

    ring           2(N-1) steps of M/N bytes, as the lesson has it: 2(N-1) alpha + 2 (N-1)/N M beta. Laid over several
                   levels of links, every step waits for the slowest.
    hierarchical   reduce-scatter in the node, all-reduce across nodes by all GPUs at once, each with its own share,
                   all-gather in the node; level by level
    in_network     the switches add: every GPU sends and receives (N-1)/N M once

Other names are those of `algorithms`, with their cost from `cost`; they need one link for all. Reductions take no time
here (gamma = 0): a GPU adds faster than these links carry, and meanwhile.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import NamedTuple

from .. import cost, links
from ..algorithms import FAMILIES
from ..algorithms.cut import even
from ..links import Link


class Transfer(NamedTuple):
    """What a collective costs a GPU.

    Attributes:
        sent: bytes that it sends, and as many that it receives.
        latency, bandwidth: seconds; what the alphas and what the bytes take.
    """

    sent: float
    latency: float
    bandwidth: float

    @property
    def seconds(self) -> float:
        return self.latency + self.bandwidth


class Level(NamedTuple):
    """A link that joins so many groups of the level below, and how many ranks share a NIC if all send at once."""

    link: Link
    fanout: int
    share: float


@dataclasses.dataclass(frozen=True)
class Fabric:
    """N GPUs, the links between them from the inside out, and the algorithm of their all-reduce; see `build`."""

    name: str
    size: int
    levels: tuple[Level, ...]
    algorithm: str

    def allreduce(self, nbytes: float) -> Transfer:
        """The cost of an all-reduce of `nbytes` bytes."""
        if self.size == 1:
            return Transfer(0, 0, 0)
        if self.algorithm == "ring":
            alpha, beta = max(x.link.alpha for x in self.levels), max(x.link.beta for x in self.levels)
            sent = 2 * (self.size - 1) / self.size * nbytes
            return Transfer(sent, 2 * (self.size - 1) * alpha, sent * beta)
        if self.algorithm in ("hierarchical", "in_network"):
            return self._levels(nbytes)
        link, chunks = self.levels[0].link, even(round(nbytes), self.size)
        seconds = cost.predict("allreduce", self.algorithm, chunks, 1, link.alpha, link.beta, 0)
        latency = cost.predict("allreduce", self.algorithm, chunks, 1, link.alpha, 0, 0)
        some = range(min(self.size, 64))
        sent = max(cost.of("allreduce", self.algorithm, rank, chunks, 1).sent for rank in some)
        return Transfer(sent, latency, seconds - latency)

    def _levels(self, nbytes: float) -> Transfer:
        """Rings inside, then the outermost level's ring or switch, each on what the level below left to a GPU."""
        sent = latency = bandwidth = 0.0
        for level in self.levels:
            link, n, share = level.link, level.fanout, level.share
            crossing = 2 * (n - 1) / n * nbytes
            if link.sharp and level is self.levels[-1]:
                sent += crossing / 2
                steps = links.in_network_allreduce(link, 0, n)
                bandwidth += (links.in_network_allreduce(link, nbytes, n) - steps) * share
                latency += steps * share
            else:
                sent += crossing
                latency += 2 * (n - 1) * link.alpha * share
                bandwidth += crossing * link.beta * share
            nbytes /= n
        return Transfer(sent, latency, bandwidth)

    def faster(self, factor: float) -> Fabric:
        """The same with the outermost link so many times as fast."""
        *inner, last = self.levels
        outer = last._replace(link=last.link._replace(beta=last.link.beta / factor))
        return dataclasses.replace(self, levels=(*inner, outer))

    def in_network(self) -> Fabric:
        """The same with an outermost link whose switches add."""
        *inner, last = self.levels
        outer = last._replace(link=last.link._replace(sharp=True))
        return dataclasses.replace(self, levels=(*inner, outer), algorithm="hierarchical" if inner else "in_network")

    def in_nodes(self, name: str, ranks: int) -> Fabric:
        """The same GPUs in nodes of so many on the named link; all of a node's use their own NIC at the same time."""
        inner = Level(links.preset(name), ranks, 1)
        outer = self.levels[-1]._replace(fanout=self.size // ranks)
        return dataclasses.replace(self, levels=(inner, outer), algorithm="hierarchical")


def build(text: str, size: int, algorithm: str | None = None) -> Fabric:
    """The fabric of `size` GPUs on links as `links.parse` reads them.

    Args:
        algorithm: of the all-reduce. None: in_network where the switches reduce, hierarchical on several levels of
            links, else ring.

    Raises:
        ValueError: unknown links, or they do not fit the number of GPUs or the algorithm.
    """
    topology = links.parse(text, size)
    levels = _levels(text, topology)
    if algorithm is None:
        algorithm = "hierarchical" if len(levels) > 1 else "in_network" if levels[0].link.sharp else "ring"
    known = dict.fromkeys(["ring", "hierarchical", "in_network", *FAMILIES["allreduce"]])
    if algorithm not in known:
        raise ValueError(f"algorithm {algorithm!r} is unknown; there are {', '.join(known)}")
    if algorithm not in ("ring", "hierarchical") and len(levels) > 1:
        raise ValueError(f"algorithm {algorithm} needs one link for all; on {text} there are ring and hierarchical")
    if algorithm == "in_network" and not levels[0].link.sharp:
        links.in_network_allreduce(levels[0].link, 0, size)  # raises, with the links whose switches do
    return Fabric(text, size, levels, algorithm)


def _levels(text: str, topology: links.Topology) -> tuple[Level, ...]:
    """The levels that join more than one group each, from the inside out."""
    found = []
    groups = 1
    for depth, level in enumerate(reversed(topology.levels)):  # from the outside in
        last = depth == len(topology.levels) - 1
        parts = Counter(place[: depth + 1] for place in topology.places)  # group → its ranks
        members = topology.size if last else len(parts)
        fanout = members // groups
        if members % groups or len(set(parts.values())) > 1:
            few, *_, many = sorted(set(parts.values()))
            raise ValueError(
                f"-n {topology.size} --links {text}: nodes of {many} and {few} GPUs; here all are alike: take a "
                f"multiple of {many} GPUs"
            )
        below = 1 if last else topology.size // members
        found.append(Level(level.link, fanout, below / level.nics if level.nics and below > 1 else 1))
        groups = members
    used = [level for level in found if level.fanout > 1]
    return tuple(reversed(used)) or (found[-1],)
