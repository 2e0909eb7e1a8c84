"""Lower bounds: what no algorithm can beat, where a rank has one port for each direction and one reducer.

n bytes of the whole buffer, p ranks. Latency: in a round a rank hears from one other, so the ranks that it knows of
double at most: ceil(lg p) rounds. Bandwidth: what has to enter or leave some rank: n for broadcast and reduce,
(p-1)/p n for reduce-scatter, all-gather, all-to-all, gather and scatter, 2(p-1)/p n for all-reduce (Patarasuk & Yuan,
JPDC 2009). Arithmetic: (p-1) n bytes are reduced, at best by all ranks alike.
"""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

REDUCING = ("reduce", "allreduce", "reduce_scatter")


class Bounds(NamedTuple):
    """Seconds; each is a bound of its own, and an algorithm can approach all of them at once, so they do not add up."""

    latency: float
    bandwidth: float
    arithmetic: float

    @property
    def seconds(self) -> float:
        """No algorithm takes less."""
        return max(self)


def busbw_factor(collective: str, size: int) -> Fraction:
    """busbw / algbw as nccl-tests defines it: the share of the buffer that crosses a rank's link at best."""
    if collective == "allreduce":
        return Fraction(2 * (size - 1), size)
    if collective in ("reduce_scatter", "allgather", "alltoall", "gather", "scatter"):
        return Fraction(size - 1, size)
    return Fraction(1)


def bounds(collective: str, nbytes: int, size: int, alpha: float, beta: float, gamma: float) -> Bounds:
    """The bounds of a collective on `nbytes` bytes of the whole buffer, cut evenly; a barrier has none.

    Args:
        alpha, beta: seconds for a message and for a byte through a port.
        gamma: seconds for a byte reduced.
    """
    if size == 1:
        return Bounds(0, 0, 0)
    moved = 0 if collective == "barrier" else busbw_factor(collective, size) * nbytes
    reduced = Fraction((size - 1) * nbytes, size) if collective in REDUCING else 0
    return Bounds((size - 1).bit_length() * alpha, moved * beta, reduced * gamma)
