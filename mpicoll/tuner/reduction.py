"""gamma, and at which sizes a reduction is faster by way of fresh memory."""

from __future__ import annotations

import itertools
from statistics import median
from typing import Any

import numpy as np

from .. import arrays
from . import calls, exchange
from .ranges import band
from .timing import Probe, Timed, Watch, race

CACHED, MEMORY = (1 << 16, 1 << 18, 1 << 20), 1 << 24  # bytes
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
                return lambda number: comm.reduce_scatter(whole, part, algorithm="pairwise")
            return lambda number: comm.allgather(own, whole, algorithm="ring")

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
    """The sizes from which and up to which a reduction is faster if it goes by way of fresh memory; (0, 0): none."""
    ways: dict[tuple[int, bool], Timed] = {}
    for nbytes in PIECES:
        call = exchange.maker(comm, _together(comm), nbytes, reduce=True)
        ways |= {(nbytes, True): _within((0, nbytes), call), (nbytes, False): _within((0, 0), call)}
    times = race(watch, ways, seconds, drop=False)
    return band({nbytes: {fresh: times[nbytes, fresh] for fresh in (True, False)} for nbytes in PIECES}) or (0, 0)


def _within(limits: tuple[int, int], call: Timed) -> Timed:
    def limited(number: int) -> object:
        arrays.copy_between(*limits)
        return call(number)

    return limited


def _together(comm: Any) -> list[int]:
    """The ranks of this rank's node, if they are several: what they reduce has just been read by another."""
    members = [rank for rank, node in enumerate(comm.nodes) if node == comm.node]
    return members if len(members) > 1 else []
