"""Which algorithm performs a call; it depends only on what all ranks share: collective, bytes, ranks, kind of links.

The one named by the call's `algorithm` argument is taken, strictly. Otherwise it is the one, of those that
MPICOLL_ALGORITHM allows, for which the cost model predicts the shortest time. The links are those of device arrays if
rank 0's program had loaded CuPy when the communicator was made, whatever arrays a call then gets.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

from . import cost
from .algorithms import COLLECTIVES, FAMILIES, SAME_LENGTH, ring
from .algorithms.cut import even
from .language import Algorithm

VARIABLE = "MPICOLL_ALGORITHM"


class Links(NamedTuple):
    """What a message and a reduction cost between processes of one machine, as a Python program sees it.

    Attributes:
        alpha, beta: seconds for a message, and for a byte of it.
        gamma, gamma_cached: seconds for a byte reduced, from memory, and in buffers of up to CACHED bytes.
        segment: bytes of a segment where an algorithm pipelines.
    """

    alpha: float
    beta: float
    gamma: float
    gamma_cached: float
    segment: int

    def predict(self, collective: str, algorithm: str, nbytes: int, size: int) -> float:
        """The seconds that the cost model predicts for a buffer of `nbytes` bytes on `size` ranks."""
        gamma = self.gamma_cached if nbytes <= CACHED else self.gamma
        segments = self.options(collective, algorithm, nbytes, size)
        return cost.predict(
            _base(collective), algorithm, even(nbytes, size), 1, self.alpha, self.beta, gamma, **segments
        )

    def options(self, collective: str, algorithm: str, nbytes: int, size: int) -> dict[str, int]:
        """The options of the algorithm for these links; none where its own choice is right."""
        parameters = inspect.signature(family(collective)[algorithm]).parameters
        if self.segment == ring.SEGMENT_BYTES or "segments" not in parameters:
            return {}
        chunks, least = (size, 2) if "chunks" in parameters else (1, 1)  # of a chunk, or of the whole
        return {"segments": max(least, -(-nbytes // (self.segment * chunks)))}


CACHED = 4 << 20  # bytes that stay in a core's caches; memory is several times slower
HOST = Links(alpha=4e-6, beta=1e-10, gamma=1e-10, gamma_cached=1e-11, segment=ring.SEGMENT_BYTES)
# A step waits for the events of kernels, so few long steps are better. These are guesses, not measured.
DEVICE = Links(alpha=3e-5, beta=2e-11, gamma=2e-12, gamma_cached=2e-12, segment=4 << 20)


def _base(collective: str) -> str:
    """The collective of which this one has its algorithms."""
    return "alltoall" if collective == "alltoallv" else collective


def family(collective: str) -> dict[str, Callable[..., Algorithm]]:
    """The algorithms of a collective by name; alltoallv's are those of alltoall's that take chunks of any length."""
    names = FAMILIES[_base(collective)]
    if collective == "alltoallv":
        return {name: found for name, found in names.items() if ("alltoall", name) not in SAME_LENGTH}
    return names


class Choice(NamedTuple):
    """The algorithm of a call, and why.

    Attributes:
        algorithm: its name.
        reason: one sentence.
        predicted: the model's time in seconds for each algorithm of the collective; an empty dict if nothing was
            compared.
    """

    algorithm: str
    reason: str
    predicted: dict[str, float]

    def __str__(self) -> str:
        times = [f"\n  {name:<20}{seconds * 1e6:12.1f} us predicted" for name, seconds in self.predicted.items()]
        return f"{self.algorithm}: {self.reason}{''.join(times)}"


def parse(text: str) -> dict[str, tuple[str, ...]]:
    """For each collective the algorithms that `text` allows, in NCCL_ALGO's grammar; alltoallv has alltoall's part.

    `[collective:][^]name,name;...`: a part without a collective is for all that have no part of their own; ^ allows all
    but the names; upper and lower case are the same. "" allows everything.

    Raises:
        ValueError: a collective or an algorithm does not exist, or a collective has two parts.
    """
    known = sorted({name for names in FAMILIES.values() for name in names})
    parts: dict[str, tuple[bool, list[str]]] = {}
    for part in filter(None, text.lower().replace(" ", "").split(";")):
        collective, colon, names = part.rpartition(":")
        collective = _base(collective)
        if colon and collective not in FAMILIES:
            raise ValueError(
                f"{VARIABLE}: {collective!r} in {text!r} is no collective; there are {', '.join(COLLECTIVES)}"
            )
        if collective in parts:
            raise ValueError(f"{VARIABLE}: {text!r} has two parts for {collective or 'all collectives'}")
        there = list(FAMILIES[collective]) if colon else known
        exclude, listed = names.startswith("^"), names.removeprefix("^").split(",")
        for name in listed:
            if name not in there:
                of = f" of {collective}" if colon else ""
                raise ValueError(f"{VARIABLE}: {name!r} in {text!r} is no algorithm{of}; there are {', '.join(there)}")
        parts[collective] = (exclude, listed)
    exclude, listed = parts.get("", (True, []))
    return {
        collective: tuple(name for name in family(collective) if (name in own) != but)
        for collective in (*FAMILIES, "alltoallv")
        for but, own in [parts.get(_base(collective), (exclude, listed))]
    }


@functools.lru_cache(maxsize=1024)
def choose(collective: str, nbytes: int, size: int, allowed: tuple[str, ...], links: Links = HOST) -> Choice:
    """The Choice for a buffer of `nbytes` bytes on `size` ranks, of the `allowed` names.

    Raises:
        ValueError: nothing is allowed.
    """
    names = family(collective)
    if not allowed:
        raise ValueError(
            f"{collective}: {VARIABLE} allows none of its algorithms {', '.join(names)}; add "
            f"';{collective}:{next(iter(names))}' to it"
        )
    predicted = {name: links.predict(collective, name, nbytes, size) for name in names}
    best = min(allowed, key=predicted.__getitem__)
    of = " of a program with devices" if links is DEVICE else ""
    reason = f"the shortest predicted time for {nbytes} bytes on {size} ranks{of}"
    if len(allowed) < len(names):
        reason += f", of those that {VARIABLE} allows ({', '.join(allowed)})"
    return Choice(best, reason, predicted)


@functools.lru_cache(maxsize=1024)
def chosen(
    collective: str, nbytes: int, nodes: tuple[int, ...], allowed: tuple[str, ...], links: Links
) -> Callable[..., Algorithm]:
    """The function of the algorithm that `choose` names, with its options; arguments as of `function`."""
    return function(collective, choose(collective, nbytes, len(nodes), allowed, links).algorithm, nbytes, nodes, links)


@functools.lru_cache(maxsize=1024)
def function(
    collective: str, algorithm: str, nbytes: int, nodes: tuple[int, ...], links: Links
) -> Callable[..., Algorithm]:
    """The function of an algorithm, with its options; nodes[r] is the number of rank r's node."""
    found = family(collective)[algorithm]
    options: dict[str, Any] = dict(links.options(collective, algorithm, nbytes, len(nodes)))
    if "nodes" in inspect.signature(found).parameters:
        options["nodes"] = nodes
    return functools.partial(found, **options) if options else found


def forced(collective: str, algorithm: object) -> Choice:
    """The Choice if the call names its algorithm.

    Raises:
        ValueError: there is no such algorithm for this collective; the message lists those there are.
    """
    names = family(collective)
    if not isinstance(algorithm, str) or algorithm not in names:
        known = isinstance(algorithm, str) and algorithm in FAMILIES[_base(collective)]
        why = ", which needs chunks of one length" if known else ""
        raise ValueError(f"{collective}: algorithm is {algorithm!r}{why}; there are {', '.join(map(repr, names))}")
    return Choice(algorithm, "the call names it", {})
