"""Times that can be compared, though the machine does other things too: interleaved, medians, of the slowest rank.

What a call sends has just been written, as in a program that computes it: before each batch, outside the clock. Calls
on the same unchanged buffers would find them in the cache of the rank that reads them. Those of a batch each have
buffers of their own, as in benching/buffers.py, but fewer: a communicator remembers 16 calls, of all candidates.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from statistics import median, quantiles
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np

Name = TypeVar("Name", bound=Hashable)
ROWS, RING_BYTES = 4, 512 << 10  # buffers of a batch: at most, and what lies in a core's cache
SAMPLE = 1e-3  # seconds for which a call is repeated for a sample
CALLS = 100  # in a sample, at most
WARM = 2  # calls before the first sample of a lap; a blocking call that comes again is recorded at its second time
LAP = 3  # samples of each candidate
FAR, NEAR = 3.0, 1.15  # times the best: a candidate beyond is dropped, after the first lap and at last


class Timed(NamedTuple):
    """A batch: calls that are alike, one for each row of buffers, and what writes anew all that they send."""

    calls: Sequence[Callable[[], object]]
    fill: Callable[[], object] = lambda: None

    def within(self, prepare: Callable[[], object]) -> Timed:
        """The same after `prepare`, before each batch and outside the clock."""

        def both() -> None:
            prepare()
            self.fill()

        return Timed(self.calls, both)


def rows_for(nbytes: int) -> int:
    """How many calls of this size are in a batch."""
    return max(1, min(ROWS, RING_BYTES // max(nbytes, 1)))


class Watch(Protocol):
    """What measures.

    Attributes:
        now: seconds since it was made, as of the last measurement; the same on all ranks.
    """

    now: float

    def time(self, batch: Timed, calls: int) -> float:
        """The seconds that each of so many calls takes, or of a few more in whole batches; the same on all ranks."""


class Stopwatch:
    """The Watch of the ranks of a Communicator: each batch begins after a barrier and is as long as on the slowest."""

    def __init__(self, comm: Any) -> None:
        self._comm, self._began, self.now = comm, time.perf_counter(), 0.0

    def time(self, batch: Timed, calls: int) -> float:
        rows = len(batch.calls)
        for _ in range(WARM if rows > 1 else 0):  # other candidates' calls may have displaced these
            self._seconds(batch)
        took = [self._seconds(batch) for _ in range(-(-calls // rows))]
        mine = np.array([sum(took) / len(took) / rows, time.perf_counter() - self._began])
        seconds, self.now = self._comm.allreduce(mine, op="max", algorithm="recursive_doubling")
        return float(seconds)

    def _seconds(self, batch: Timed) -> float:
        batch.fill()
        self._comm.barrier(algorithm="dissemination")  # whatever MPICOLL_ALGORITHM allows to others
        start = time.perf_counter()
        for call in batch.calls:
            call()
        return time.perf_counter() - start


class Race(Generic[Name]):
    """Candidates that take turns, lap by lap; who is far behind is dropped.

    They start each time in another order, and laps can be far apart in time, so that what disturbs the machine disturbs
    all. In later laps ever nearer ones are dropped: the time goes to those that are close to each other.
    """

    def __init__(self, names: Iterable[Name], drop: bool = True) -> None:
        self._alive, self._drop, self._laps = list(names), drop, 0
        self._samples: dict[Name, list[float]] = {name: [] for name in self._alive}

    @property
    def alive(self) -> Sequence[Name]:
        return self._alive

    @property
    def times(self) -> dict[Name, float]:
        """The median seconds of each, also of those that were dropped."""
        return {name: median(found) for name, found in self._samples.items()}

    @property
    def noise(self) -> float:
        """By what share of it the best one's median may be off: between quartiles, over the root of how many."""
        found = min(self._samples.values(), key=median)
        low, middle, high = quantiles(found, n=4, method="inclusive") if len(found) > 1 else (0, 1, 0)
        return (high - low) / middle / math.sqrt(len(found))

    def lap(self, watch: Watch, calls: Mapping[Name, Timed]) -> None:
        """Each that is left has LAP samples more."""
        warm = {name: watch.time(calls[name], WARM) for name in self._alive}
        many = {name: max(1, min(CALLS, int(SAMPLE / max(seconds, 1e-9)))) for name, seconds in warm.items()}
        for turn in range(LAP):
            for i in range(len(self._alive)):
                name = self._alive[(i + turn) % len(self._alive)]
                self._samples[name].append(watch.time(calls[name], many[name]))
        if self._drop:
            keep = NEAR + (FAR - NEAR) / 2**self._laps
            best = min(self.times.values())  # who was disturbed is not dropped: its fastest sample counts
            self._alive = [name for name in self._alive if min(self._samples[name]) <= keep * best]
        self._laps += 1


class Probe(Generic[Name]):
    """A race without losers, of calls that are made anew for each lap, so that their memory is not kept."""

    def __init__(self, names: Iterable[Name], make: Callable[[Name], Timed]) -> None:
        self._race, self._make = Race(names, drop=False), make

    def lap(self, watch: Watch) -> None:
        """Each has LAP samples more."""
        self._race.lap(watch, {name: self._make(name) for name in self._race.alive})

    @property
    def times(self) -> dict[Name, float]:
        """The median seconds of each."""
        return self._race.times


def race(watch: Watch, calls: Mapping[Name, Timed], seconds: float, drop: bool = True) -> dict[Name, float]:
    """The median seconds of a call of each candidate, after laps for about so many seconds, one at least."""
    found = Race(calls, drop)
    for _ in laps(watch, watch.now + seconds):
        found.lap(watch, calls)
    return found.times


def laps(watch: Watch, end: float) -> Iterable[int]:
    """Numbers of laps, one at least, as long as one more like the last one ends by `end` on the watch, or nearly.

    It is the last one if nothing was measured in it: the watch would stand still for ever.
    """
    number, lasted = 0, 0.0
    while number == 0 or (lasted > 0 and watch.now + 0.75 * lasted < end):
        began = watch.now
        yield number
        number, lasted = number + 1, watch.now - began
