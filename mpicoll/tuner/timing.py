"""Times that can be compared, though the machine does other things too: interleaved, medians, of the slowest rank."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from statistics import median, quantiles
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

Name = TypeVar("Name", bound=Hashable)
Timed = Callable[[int], object]  # a call; its argument is its number in the batch

BATCH = 1e-3  # seconds for which a call is repeated between two looks at the clock
CALLS = 100  # in a batch, at most
WARM = 2  # calls before the first batch of a lap; a blocking call that comes again is recorded at its second time
LAP = 3  # batches of each candidate
FAR, NEAR = 3.0, 1.15  # times the best: a candidate beyond is dropped, after the first lap and at last


class Watch(Protocol):
    """What measures.

    Attributes:
        now: seconds since it was made, as of the last measurement; the same on all ranks.
    """

    now: float

    def time(self, call: Timed, calls: int) -> float:
        """The seconds that each of so many calls takes, one after the other; the same on all ranks."""


class Stopwatch:
    """The Watch of the ranks of a Communicator: each batch begins after a barrier and is as long as on the slowest."""

    def __init__(self, comm: Any) -> None:
        self._comm, self._began, self.now = comm, time.perf_counter(), 0.0

    def time(self, call: Timed, calls: int) -> float:
        self._comm.barrier(algorithm="dissemination")  # whatever MPICOLL_ALGORITHM allows to others
        start = time.perf_counter()
        for number in range(calls):
            call(number)
        end = time.perf_counter()
        mine = np.array([(end - start) / calls, end - self._began])
        seconds, self.now = self._comm.allreduce(mine, op="max", algorithm="recursive_doubling")
        return float(seconds)


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
        """By how much of its median the best one's times differ: from the first quartile to the third."""
        found = min(self._samples.values(), key=median)
        low, middle, high = quantiles(found, n=4, method="inclusive") if len(found) > 1 else (0, 1, 0)
        return (high - low) / middle

    def lap(self, watch: Watch, calls: Mapping[Name, Timed]) -> None:
        """Each that is left has run LAP batches more."""
        warm = {name: watch.time(calls[name], WARM) for name in self._alive}
        many = {name: max(1, min(CALLS, int(BATCH / max(seconds, 1e-9)))) for name, seconds in warm.items()}
        for turn in range(LAP):
            for i in range(len(self._alive)):
                name = self._alive[(i + turn) % len(self._alive)]
                self._samples[name].append(watch.time(calls[name], many[name]))
        if self._drop:
            keep = NEAR + (FAR - NEAR) / 2**self._laps
            best = min(self.times.values())  # who was disturbed is not dropped: its fastest batch counts
            self._alive = [name for name in self._alive if min(self._samples[name]) <= keep * best]
        self._laps += 1


class Probe(Generic[Name]):
    """A race without losers, of calls that are made anew for each lap, so that their memory is not kept."""

    def __init__(self, names: Iterable[Name], make: Callable[[Name], Timed]) -> None:
        self._race, self._make = Race(names, drop=False), make

    def lap(self, watch: Watch) -> None:
        """Each call has run LAP batches more."""
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
