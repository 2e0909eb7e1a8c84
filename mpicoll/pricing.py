"""What a collective takes on given links: one wire for all ranks, or ranks in nodes and a network between them.

On one node the closed forms say it, for the very call. Where ranks are in several nodes the algorithms are simulated,
for a size rounded to three binary digits, so that few have to be, and large jobs by way of smaller ones.
"""

from __future__ import annotations

import collections
import functools
import inspect
import itertools
import math
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

from . import cost
from .algorithms import FAMILIES, SAME_LENGTH, ring
from .algorithms.cut import even
from .cost import Bound, Machine, Wire
from .language import Algorithm


class Links(NamedTuple):
    """What a message and a reduction cost, as a Python program sees it.

    Attributes:
        node, network: the wires between processes of one node, and of two.
        shared: the ranks of a node share one way out of it, as with one NIC; else each has its own.
        gamma, gamma_cached: seconds for a byte reduced, from memory, and in buffers of up to CACHED bytes.
        segment: bytes of a segment where an algorithm pipelines.
    """

    node: Wire
    network: Wire
    shared: bool
    gamma: float
    gamma_cached: float
    segment: int

    def predict(self, collective: str, algorithm: str, nbytes: int, size: int) -> float:
        """The seconds that the closed forms predict for a buffer of `nbytes` bytes on `size` ranks of one node."""
        options = self.options(collective, algorithm, nbytes, size)
        costs = cost.busiest(base(collective), algorithm, even(nbytes, size), 1, **options)
        return max(cost.time_on(one, self.node, self.rate(nbytes)) for one in costs)

    def rate(self, nbytes: int) -> float:
        """Seconds for a byte reduced, in a buffer of so many."""
        return self.gamma_cached if nbytes <= CACHED else self.gamma

    def machine(self, nodes: tuple[int, ...], nbytes: int) -> Machine:
        """Ranks in these nodes on these links, with the gamma of a buffer of so many bytes."""
        return Machine(nodes, self.node, self.network, self.shared, self.rate(nbytes))

    def options(self, collective: str, algorithm: str, nbytes: int, size: int) -> dict[str, int]:
        """The options of the algorithm for these links; none where its own choice is right."""
        parameters = inspect.signature(family(collective)[algorithm]).parameters
        if self.segment == ring.SEGMENT_BYTES or "segments" not in parameters:
            return {}
        chunks, least = (size, 2) if "chunks" in parameters else (1, 1)  # of a chunk, or of the whole
        return {"segments": max(least, -(-nbytes // (self.segment * chunks)))}


CACHED = 4 << 20  # bytes that stay in a core's caches; memory is several times slower
# The network is a guess in both, as no two are alike: 10 Gb/s Ethernet by TCP, one NIC for a node; 200 Gb/s InfiniBand,
# a NIC for each device.
HOST = Links(
    node=Wire(alpha=2e-6, beta=1e-10),
    network=Wire(alpha=24e-6, beta=8e-10),
    shared=True,
    gamma=1.7e-10,
    gamma_cached=1.4e-10,  # what is reduced into has just been read by another rank
    segment=ring.SEGMENT_BYTES,
)
# A step waits for the events of kernels, so few long steps are better. These are guesses, not measured.
DEVICE = Links(
    node=Wire(alpha=3e-5, beta=2e-11),
    network=Wire(alpha=33e-6, beta=4e-11),
    shared=False,
    gamma=2e-12,
    gamma_cached=2e-12,
    segment=4 << 20,
)


def base(collective: str) -> str:
    """The collective of which this one has its algorithms."""
    return "alltoall" if collective == "alltoallv" else collective


def family(collective: str) -> dict[str, Callable[..., Algorithm]]:
    """The algorithms of a collective by name; alltoallv's are those of alltoall's that take chunks of any length."""
    names = FAMILIES[base(collective)]
    if collective == "alltoallv":
        return {name: found for name, found in names.items() if ("alltoall", name) not in SAME_LENGTH}
    return names


PARTS = 16  # the most, where levels work side by side


def parts(nbytes: int, nodes: tuple[int, ...], links: Links) -> int:
    """In how many parts a buffer crosses while others are in the nodes.

    k parts hide all but 1/k of the shorter level's time t, and cost k times the latencies l of a part in both levels:
    the sum t/k + k l is the least for k = sqrt(t/l).
    """
    count, size = len(set(nodes)), len(nodes)
    if not 1 < count < size:
        return 1
    (inside, beta), (between, crossing) = links.node.rates(nbytes // size), links.network.rates(nbytes // size)
    gamma, share = links.rate(nbytes), count / size  # of a rank in what its node sends
    in_node = (1 - share) * nbytes * (2 * beta + gamma)
    across_nodes = (1 - 1 / count) * nbytes * (2 * crossing * (1 if links.shared else share) + gamma * share)
    latency = 3 * ((size / count - 1) * inside + (count - 1) * between)  # a ring's two segments out, and one back
    return min(PARTS, max(1, round(math.sqrt(min(in_node, across_nodes) / latency))))


def options_of(collective: str, algorithm: str, nbytes: int, nodes: tuple[int, ...], links: Links) -> dict[str, Any]:
    """The options of the algorithm for these links and nodes."""
    options: dict[str, Any] = dict(links.options(collective, algorithm, nbytes, len(nodes)))
    if "nodes" in inspect.signature(family(collective)[algorithm]).parameters:
        options |= {"nodes": nodes, "parts": parts(nbytes, nodes, links)}
    return options


LARGE = 1 << 20  # bytes for each rank; from there on times grow as the buffer, as segments do not get longer


def rounded(nbytes: int) -> int:
    """The nearest number with three binary digits before its zeros."""
    zeros = max(nbytes.bit_length() - 3, 0)
    return (nbytes + (1 << zeros >> 1)) >> zeros << zeros


class Nodes(tuple[int, ...]):
    """A tuple that knows its hash, and the only one of its content: a cache finds what it has for 1024 ranks as quickly
    as for two."""

    _known: ClassVar[dict[Nodes, Nodes]] = {}

    def __new__(cls, numbers: Iterable[int]) -> Nodes:
        made = super().__new__(cls, numbers)
        return cls._known.setdefault(made, made)

    def __hash__(self) -> int:
        return self._hash

    @functools.cached_property
    def _hash(self) -> int:
        return super().__hash__()


class Prices(NamedTuple):
    """What the algorithms of a collective take, by name.

    Attributes:
        seconds: by closed forms, simulated, or a bound.
        least: those of which it is a bound; they take longer than CLOSE times the fastest.
        scaled: those of which a smaller job was simulated.
        partners: the most other nodes to which the ranks of one send, or from which they receive; empty on one node.
    """

    seconds: dict[str, float]
    least: frozenset[str] = frozenset()
    scaled: frozenset[str] = frozenset()
    partners: Mapping[str, int] = MappingProxyType({})


CLOSE = 1.15  # times the shortest time: what the clock does not know counts for more


@functools.lru_cache(maxsize=256)
def across(collective: str, nbytes: int, nodes: tuple[int, ...], allowed: tuple[str, ...], links: Links) -> Prices:
    """The Prices of all algorithms; of the `allowed` ones those that are CLOSE to the fastest are no bounds.

    The most promising are simulated first, by their bounds, until no other can come close. A buffer that is larger
    takes as many times as long as a LARGE one.
    """
    large = max(len(nodes) * LARGE, 2 * CACHED)
    if nbytes > large:
        prices = across(collective, large, nodes, allowed, links)
        return prices._replace(seconds={name: one * nbytes / large for name, one in prices.seconds.items()})
    jobs = {name: Job(collective, name, nbytes, nodes, links) for name in family(collective)}
    bounds = {name: job.bound() for name, job in jobs.items()}
    found, least, scaled, best = {}, set(), set(), math.inf
    for name in sorted(jobs, key=lambda name: bounds[name].seconds):
        seconds = bounds[name].seconds
        if seconds > CLOSE * best:
            least.add(name)
        elif jobs[name].work(bounds[name]) <= WORK:
            seconds = jobs[name].simulate()
        else:
            seconds = jobs[name].scaled(bounds[name])
            scaled.add(name)
        found[name] = seconds
        if name in allowed and name not in least:
            best = min(best, seconds)
    partners = {name: bound.partners for name, bound in bounds.items()}
    return Prices({name: found[name] for name in jobs}, frozenset(least), frozenset(scaled), partners)


WORK = 60_000  # units of about a microsecond; larger jobs are not simulated
MESSAGE = 10  # units; a copy, a reduction or a view of an array is one
SHARE = 64 << 10  # bytes of a rank's share; from there on a job shrinks in ranks and bytes alike


class Job(NamedTuple):
    """A call of an algorithm on ranks in several nodes."""

    collective: str
    algorithm: str
    nbytes: int
    nodes: tuple[int, ...]
    links: Links

    def _arguments(self) -> tuple[Machine, tuple[str, str, tuple[int, ...], int], dict[str, Any]]:
        size, known = len(self.nodes), base(self.collective)
        whole = -(-self.nbytes // size) * size if (known, self.algorithm) in SAME_LENGTH else self.nbytes
        options = options_of(self.collective, self.algorithm, self.nbytes, self.nodes, self.links)
        machine = self.links.machine(self.nodes, self.nbytes)
        return machine, (known, self.algorithm, even(whole, size), 1), options

    def bound(self) -> Bound:
        machine, arguments, options = self._arguments()
        return machine.bound(*arguments, **options)

    def simulate(self) -> float:
        machine, arguments, options = self._arguments()
        return machine.simulate(*arguments, **options)

    def work(self, bound: Bound) -> int:
        """The units of a simulation; every rank looks at all others once."""
        return MESSAGE * bound.messages + bound.made + len(self.nodes) ** 2 // 4

    def scaled(self, bound: Bound) -> float:
        """The seconds of the job, from the simulations of two smaller ones.

        Each gives the factor by which waiting prolongs the bound; if it grows from the smaller to the larger one, it is
        taken to grow as much in every step from there to the whole job. That is right where it does not depend on the
        size, and where it grows with the ranks, as in a chain of short messages.
        """
        halvings = max(1, math.ceil(math.log(self.work(bound) / WORK, 4)))
        while (less := self.halved(halvings)).work(found := less.bound()) > WORK and less.nbytes + len(less.nodes) > 2:
            halvings += 1
        least = less.halved(1)
        factor, smaller = less.simulate() / found.seconds, least.simulate() / least.bound().seconds
        return bound.seconds * factor * max(1.0, factor / smaller) ** halvings

    def halved(self, times: int) -> Job:
        """So many times, half the nodes are left out, or half the ranks of each if those are more; and half the bytes,
        where shares are large."""
        job = self
        for _ in range(times):
            nodes, counts = job.nodes, collections.Counter(job.nodes)
            if len(counts) >= max(3, *counts.values()):
                kept = set(list(counts)[: len(counts) // 2 + len(counts) % 2])
                nodes = tuple(node for node in nodes if node in kept)
            else:
                seen = {node: itertools.count() for node in counts}
                nodes = tuple(node for node in nodes if next(seen[node]) < max(1, counts[node] // 2))
            large = job.nbytes >= SHARE * len(job.nodes) or len(nodes) == len(job.nodes)
            job = job._replace(nodes=nodes, nbytes=job.nbytes // 2 if large else job.nbytes)
        return job
