"""gamma, and at which sizes a reduction is faster by way of fresh memory."""

from __future__ import annotations

import itertools
from functools import partial
from statistics import median
from typing import Any

import numpy as np

from .. import arrays
from . import calls, exchange
from .ranges import band
from .timing import Probe, Timed, Watch, race

CACHED, MEMORY = (1 << 16, 1 << 18, 1 << 20), 1 << 24  # bytes
INTO = "sent", "arrived"
PIECES = tuple(1 << power for power in range(13, 22))  # 8 KiB to 2 MiB


class Gammas:
    """Seconds for a byte reduced: what a reduce-scatter takes longer than an all-gather with as many messages."""

    def __init__(self, comm: Any) -> None:
        def make(name: tuple[int, bool]) -> Timed:
            whole = np.ones(calls.fitting(name[0], comm.size) // 4, np.float32)
            count = len(whole) // comm.size
            part = np.ones(count, np.float32)
            own = whole[count * comm.rank : count * (comm.rank + 1)]  # in place: nothing is copied
            if name[1]:
                call, sent = partial(comm.reduce_scatter, whole, part, algorithm="pairwise"), whole
            else:
                call, sent = partial(comm.allgather, own, whole, algorithm="ring"), own
            return Timed([call], partial(sent.fill, 1))

        self._size: int = comm.size
        self._probe = Probe(itertools.product((*CACHED, MEMORY), (False, True)), make)
        self.lap = self._probe.lap

    @property
    def memory(self) -> float:
        """Of buffers in memory."""
        return self._gamma(MEMORY)

    @property
    def cached(self) -> float:
        """Of buffers that fit a cache."""
        return median(map(self._gamma, CACHED))

    def _gamma(self, nbytes: int) -> float:
        times, reduced = self._probe.times, nbytes * (self._size - 1) / self._size
        return max(0.0, times[nbytes, True] - times[nbytes, False]) / reduced


def copied(watch: Watch, comm: Any, seconds: float) -> tuple[int, int]:
    """The sizes from which and up to which a reduction is faster if it goes by way of fresh memory; (0, 0): none.

    It is if it is both into what was sent, whose cache lines the receiver shares, as an all-reduce in place does it,
    and into what has arrived, as pipelines do it.
    """
    found: dict[int, list[dict[bool, float]]] = {}
    for nbytes in PIECES:

        def calls_of(into: str, fresh: bool, nbytes: int = nbytes) -> Timed:
            limits = (0, nbytes) if fresh else (1, 0)
            calls = exchange.maker(comm, _together(comm), nbytes, rounds=1, into=into)
            return calls.within(partial(arrays.copy_between, *limits))

        ways = {way: calls_of(*way) for way in itertools.product(INTO, (False, True))}
        times = race(watch, ways, seconds / len(PIECES), drop=False)
        found[nbytes] = [{fresh: times[into, fresh] for fresh in (False, True)} for into in INTO]
    return band(found) or (0, 0)


def _together(comm: Any) -> list[int]:
    """The ranks of this rank's node, if they are several: what they reduce has just been read by another."""
    members = [rank for rank, node in enumerate(comm.nodes) if node == comm.node]
    return members if len(members) > 1 else []
