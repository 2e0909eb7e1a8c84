"""What a collective takes on given links: one wire for all ranks, or ranks in nodes and a network between them.

On one node the closed forms say it, for the very call. Where ranks are in several nodes the algorithms are simulated,
for a size rounded to three binary digits, so that few have to be.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable
from typing import Any, NamedTuple

from . import cost
from .algorithms import FAMILIES, SAME_LENGTH, ring
from .algorithms.cut import even
from .cost import Machine, Wire
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
    node=Wire(alpha=4e-6, beta=1e-10),
    network=Wire(alpha=24e-6, beta=8e-10),
    shared=True,
    gamma=1e-10,
    gamma_cached=1e-11,
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


PART, PARTS = 512 << 10, 16  # bytes of a part where levels work side by side, and the most of them


def options_of(collective: str, algorithm: str, nbytes: int, nodes: tuple[int, ...], links: Links) -> dict[str, Any]:
    """The options of the algorithm for these links and nodes."""
    options: dict[str, Any] = dict(links.options(collective, algorithm, nbytes, len(nodes)))
    if "nodes" in inspect.signature(family(collective)[algorithm]).parameters:
        options["nodes"] = nodes
        if 1 < len(set(nodes)) < len(nodes):  # one part crosses while another is in the nodes
            options["parts"] = max(1, min(PARTS, nbytes // PART))
    return options


SIMULATED = 20_000  # messages; of more the bound has to do
LARGE = 1 << 20  # bytes for each rank; from there on times grow as the buffer, as segments do not get longer


def rounded(nbytes: int) -> int:
    """The nearest number with three binary digits before its zeros."""
    zeros = max(nbytes.bit_length() - 3, 0)
    return (nbytes + (1 << zeros >> 1)) >> zeros << zeros


@functools.lru_cache(maxsize=256)
def across(
    collective: str, nbytes: int, nodes: tuple[int, ...], allowed: tuple[str, ...], links: Links
) -> tuple[dict[str, float], frozenset[str]]:
    """The time of every algorithm on the machine, and those of which it is a bound.

    The most promising are simulated first, by their bounds, and those not that cannot become the fastest. A buffer that
    is larger takes as many times as long as a LARGE one.
    """
    large = max(len(nodes) * LARGE, 2 * CACHED)
    if nbytes > large:
        times, least = across(collective, large, nodes, allowed, links)
        return {name: seconds * nbytes / large for name, seconds in times.items()}, least
    machine, known, size = links.machine(nodes, nbytes), base(collective), len(nodes)
    calls: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {}
    for name in family(collective):
        whole = -(-nbytes // size) * size if (known, name) in SAME_LENGTH else nbytes
        calls[name] = even(whole, size), options_of(collective, name, nbytes, nodes, links)
    bounds = {name: machine.bound(known, name, counts, 1, **options) for name, (counts, options) in calls.items()}
    found, bounded, best = {}, set(), math.inf
    for name in sorted(calls, key=bounds.__getitem__):
        counts, options = calls[name]
        seconds, messages = bounds[name]
        if seconds > best or messages > SIMULATED:
            bounded.add(name)
        else:
            seconds = machine.simulate(known, name, counts, 1, **options)
        found[name] = seconds
        if name in allowed:
            best = min(best, seconds)
    return {name: found[name] for name in calls}, frozenset(bounded)
