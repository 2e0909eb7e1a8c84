"""The clock: who calls when, what is measured, and what is found wrong.

In each of n repetitions every contender has its turn, in an order that rotates, so that what disturbs the machine
disturbs all alike; a ratio is taken within a repetition. In its turn a contender calls

    back to back    once for each row of buffers, a barrier before; again until some milliseconds are spent
    one at a time   once for each row of buffers, a barrier before each call

The first gives time and bandwidth, the second latency; where there is one row they are the same. Filling and checking
are outside of what is timed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI

from .buffers import Buffers, Mistake
from .cases import Case

TURN = 2e-3  # seconds of calls back to back in a turn
MOST_BATCHES = 100  # in a turn


class Found(NamedTuple):
    """What a contender's calls took and did.

    Attributes:
        throughput: seconds per call, back to back: (ranks, repetitions).
        latency: seconds of calls one at a time: (ranks, calls).
        wrong: elements that were wrong, over all ranks and iterations; None: nothing was checked.
        first: what was wrong first, of the lowest rank, in words.
    """

    throughput: Any
    latency: Any
    wrong: int | None
    first: str | None

    @property
    def slowest(self) -> Any:
        """The slowest rank's time of each repetition."""
        return self.throughput.max(axis=0)

    @property
    def single(self) -> Any:
        """The slowest rank's time of each call on its own."""
        return self.latency.max(axis=0)


class Turn:
    """A contender's calls on buffers, its times and its mistakes."""

    def __init__(
        self, world: MPI.Intracomm, calls: Sequence[Callable[[], object]], buffers: Buffers, check: bool
    ) -> None:
        self.world, self.calls, self.buffers, self.check = world, calls, buffers, check
        self.batches = 1
        self.throughput: list[float] = []
        self.latency: list[float] = []
        self.wrong = 0
        self.first: tuple[int, Mistake] | None = None

    def batch(self, shift: int) -> float:
        """The seconds of one call after the other."""
        self.buffers.fill(shift)
        calls = self.calls
        self.world.Barrier()
        start = time.perf_counter()
        for call in calls:
            call()
        took = time.perf_counter() - start
        self._check(shift)
        return took

    def one_by_one(self, shift: int) -> list[float]:
        """The seconds of each call on its own."""
        self.buffers.fill(shift)
        took = []
        for call in self.calls:
            self.world.Barrier()
            start = time.perf_counter()
            call()
            took.append(time.perf_counter() - start)
        self._check(shift)
        return took

    def _check(self, shift: int) -> None:
        for mistake in self.buffers.check(shift) if self.check else ():
            self.wrong += mistake.wrong
            self.first = self.first or (shift + mistake.row, mistake)

    def repetition(self, shift: int, timed: bool) -> int:
        """The contender has had its turn; the shift for the next one."""
        rows = len(self.calls)
        took = []
        for _ in range(self.batches):
            took.append(self.batch(shift))
            shift += rows
        singles = took
        if rows > 1:
            singles = self.one_by_one(shift)
            shift += rows
        if timed:
            self.throughput.append(sum(took) / len(took) / rows)
            self.latency += singles
        else:  # all ranks agree on how often it fits into a turn
            slowest = max(self.world.allreduce(took[-1], MPI.MAX), 1e-9)
            self.batches = max(1, min(MOST_BATCHES, round(TURN / slowest)))
        return shift

    def found(self) -> Found:
        """Collective."""
        throughput, latency = self._of_all(self.throughput), self._of_all(self.latency)
        if not self.check:
            return Found(throughput, latency, None, None)
        wrong = self.world.allreduce(self.wrong)
        first = None
        if wrong:
            told = [(rank, *what) for rank, what in enumerate(self.world.allgather(self.first)) if what]
            rank, call, mistake = told[0]
            others = "" if len(told) == 1 else f"; ranks with something wrong: {', '.join(str(t[0]) for t in told)}"
            first = f"rank {rank}, call {call}: {mistake.text} ({mistake.wrong} wrong in this call){others}"
        return Found(throughput, latency, wrong, first)

    def _of_all(self, mine: Sequence[float]) -> Any:
        everyone = np.empty((self.world.size, len(mine)))
        self.world.Allgather(np.array(mine), everyone)
        return everyone


def measure(
    world: MPI.Intracomm,
    contenders: Sequence[Any],
    case: Case,
    buffers: Buffers,
    warmup: int,
    repetitions: int,
    check: bool,
    tick: Callable[[], object],
) -> list[Found]:
    """What is Found of each contender on the same buffers. Collective."""
    turns = [
        Turn(world, who.calls(case, buffers), buffers, check and not who.unchecked(case) and case.count > 0)
        for who in contenders
    ]
    shift = 0
    for number in range(-warmup, repetitions):
        for place in range(len(turns)):
            shift = turns[(number + place) % len(turns)].repetition(shift, number >= 0)
        tick()
    for who in contenders:
        who.end()
    return [turn.found() for turn in turns]


def ratio(ours: Found, theirs: Found) -> dict[str, float]:
    """The quartiles of our time over theirs, repetition by repetition."""
    low, middle, high = np.percentile(ours.slowest / theirs.slowest, [25, 50, 75])
    return {"median": float(middle), "q1": float(low), "q3": float(high)}
