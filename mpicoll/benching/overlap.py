"""How much of a nonblocking collective hides behind computation, by the two usual definitions; every call is checked.

pure is the time of the collective alone, compute that of the computation alone, overall that of both: started, computed
with a look at progress between slices, waited for. The two are not comparable, so both are named:

    OSU        max(0, 100 - (overall - compute) / pure * 100)                                    osu_iallreduce
    IMB-NBC    100 * clip((pure + compute - overall) / max(pure, compute), 0, 1)                 its source
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI

from .buffers import Buffers, Mistake
from .cases import Case
from .contenders import Ours

WIDTH = 32  # of the matrices: a product takes a microsecond or two
SLICES = 16  # of the computation; after each, what is in flight is driven on


class Kernel:
    """Matrix products, on the device to which `place` brings arrays."""

    def __init__(self, place: Any) -> None:
        self._a = place(np.ones((WIDTH, WIDTH), "float32"))
        self._out = place(np.empty((WIDTH, WIDTH), "float32"))
        self._stream = None if isinstance(self._a, np.ndarray) else sys.modules["cupy"].cuda.get_current_stream()

    def multiply(self, times: int) -> None:
        for _ in range(times):
            self._a.dot(self._a, out=self._out)

    def settle(self) -> None:
        """What was queued on a device is done."""
        if self._stream:
            self._stream.synchronize()


def osu(pure: float, compute: float, overall: float) -> float:
    return max(0.0, 100 - (overall - compute) / pure * 100)


def imb(pure: float, compute: float, overall: float) -> float:
    return 100 * min(max((pure + compute - overall) / max(pure, compute), 0.0), 1.0)


class Overlap(NamedTuple):
    """Microseconds and percentages; elements that were wrong, over all ranks and calls, and what was first, in words.

    Nothing was checked: None.
    """

    found: dict[str, float]
    wrong: int | None
    first: str | None


def measure(
    world: MPI.Intracomm, ours: Ours, case: Case, buffers: Buffers, repetitions: int, place: Any, check: bool = True
) -> Overlap:
    """Medians over repetitions of the slowest rank. Collective."""
    kernel = Kernel(place)
    mistakes: list[Mistake] = []

    def start() -> Any:
        return ours.start(case, buffers.send[0], buffers.recv[0])

    def alone() -> None:
        start().wait()

    def computation(products: int) -> None:
        for _ in range(SLICES):
            kernel.multiply(products)
        kernel.settle()

    def both(products: int) -> None:
        handle = start()
        for _ in range(SLICES):
            kernel.multiply(products)
            ours.comm.progress()
        handle.wait()
        kernel.settle()

    def clocked(what: Callable[..., None], *arguments: int, calls: bool = True) -> float:
        took = np.empty(repetitions)
        for repetition in range(repetitions):
            buffers.fill(repetition)
            world.Barrier()
            begin = time.perf_counter()
            what(*arguments)
            took[repetition] = time.perf_counter() - begin
            if calls and check:
                mistakes.extend(mistake for mistake in buffers.check(repetition) if mistake.row == 0)
        slowest = np.empty(repetitions)
        world.Allreduce(took, slowest, MPI.MAX)
        return float(np.median(slowest))

    clocked(alone)
    pure = clocked(alone)
    products = max(1, round(pure / max(clocked(computation, 1, calls=False), 1e-9)))  # about as long as the collective
    compute, overall = clocked(computation, products, calls=False), clocked(both, products)
    found = {
        "pure_us": pure * 1e6,
        "compute_us": compute * 1e6,
        "overall_us": overall * 1e6,
        "osu_percent": osu(pure, compute, overall),
        "imb_percent": imb(pure, compute, overall),
    }
    if not check:
        return Overlap(found, None, None)
    wrong = world.allreduce(sum(mistake.wrong for mistake in mistakes))
    firsts = world.allgather(mistakes[0].text if mistakes else None)
    told = [f"rank {rank}, beside computation: {text}" for rank, text in enumerate(firsts) if text]
    return Overlap(found, wrong, told[0] if told else None)
