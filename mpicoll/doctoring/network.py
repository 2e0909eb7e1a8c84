"""Messages and clocks, measured by the MPI's own messages, so that the MPI is seen without what mpicoll adds."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

SIZES = (8, 64 << 10, 1 << 20)  # bytes
SECONDS = 0.1  # for each size of a pair
WARM, LEAST, MOST = 2, 5, 200  # messages there and back
CLOCK_READINGS = 10


class Link(NamedTuple):
    """Two ranks, whether they are on one node, and the seconds of a message one way by its bytes: the medians."""

    a: int
    b: int
    near: bool
    seconds: dict[int, float]

    @property
    def latency(self) -> float:
        return self.seconds[min(SIZES)]

    @property
    def rate(self) -> float:
        """B/s of long messages."""
        return max(SIZES) / self.seconds[max(SIZES)]


class Clock(NamedTuple):
    """By how many seconds a rank's clock is ahead of rank 0's, and by how many that may be wrong."""

    rank: int
    ahead: float
    error: float


def rounds(nodes: Sequence[int]) -> Iterator[list[tuple[int, int]]]:
    """Pairs of ranks that exchange messages at the same time: on every node its first two, then nodes with their next.

    Args:
        nodes: the node of every rank.
    """
    members = [[rank for rank, at in enumerate(nodes) if at == node] for node in range(max(nodes) + 1)]
    first = [ranks[0] for ranks in members]
    yield [(ranks[0], ranks[1]) for ranks in members if len(ranks) > 1]
    pairs = list(itertools.pairwise(first))
    if len(first) > 2:
        pairs.append((first[-1], first[0]))
    odd = pairs[-1:] if len(first) > 2 and len(first) % 2 else []  # its first rank is the first pair's too
    yield pairs[: len(pairs) - len(odd)][::2]
    yield pairs[: len(pairs) - len(odd)][1::2]
    yield odd


def links(world: Any, nodes: Sequence[int]) -> list[Link]:
    """The links of the pairs of `rounds`; on rank 0, [] elsewhere. Collective."""
    found = []
    for pairs in rounds(nodes):
        for a, b in pairs:
            if world.rank in (a, b):
                times = {nbytes: ping_pong(world, a, b, nbytes) for nbytes in SIZES}
                if world.rank == a:
                    found.append(Link(a, b, nodes[a] == nodes[b], times))
        _together(world)
    return [link for part in world.gather(found) or () for link in part]


def ping_pong(world: Any, a: int, b: int, nbytes: int) -> float:
    """The median seconds of a message one way; only a's is used."""
    buffer, began, more = np.zeros(nbytes, np.uint8), time.perf_counter(), True
    times: list[float] = []
    while more:
        if world.rank == a:
            more = len(times) < WARM + LEAST or (time.perf_counter() - began < SECONDS and len(times) < MOST)
            buffer[0] = more  # so both know the last one
            start = time.perf_counter()
            _wait(world.Isend(buffer, b))
            _wait(world.Irecv(buffer, b))
            times.append((time.perf_counter() - start) / 2)
        else:
            _wait(world.Irecv(buffer, a))
            more = bool(buffer[0])
            _wait(world.Isend(buffer, a))
    return median(times[WARM:] or [0.0])


def clocks(world: Any, nodes: Sequence[int]) -> list[Clock]:
    """The clocks of the first ranks of the other nodes; on rank 0, [] elsewhere. Collective.

    Of several readings that counts whose message was back first: half that time is the error.
    """
    found = []
    firsts = [nodes.index(node) for node in range(1, max(nodes) + 1)]
    theirs: NDArray[np.float64] = np.zeros(1)
    if world.rank in firsts:
        for _ in range(CLOCK_READINGS):
            _wait(world.Irecv(theirs, 0))
            theirs[0] = time.time()
            _wait(world.Isend(theirs, 0))
    for rank in firsts if world.rank == 0 else ():
        readings = []
        for _ in range(CLOCK_READINGS):
            start = time.time()
            _wait(world.Isend(theirs, rank))
            _wait(world.Irecv(theirs, rank))
            end = time.time()
            readings.append(((end - start) / 2, float(theirs[0]) - (start + end) / 2))
        error, ahead = min(readings)
        found.append(Clock(rank, ahead, error))
    _together(world)
    return found


def _wait(request: Any) -> None:
    """The request is complete; meanwhile others may have the core, if there are more ranks than cores."""
    while not request.Test():
        os.sched_yield()


def _together(world: Any) -> None:
    """All ranks are here; those that wait leave the core to those that measure."""
    request = world.Ibarrier()
    while not request.Test():
        time.sleep(5e-4)
