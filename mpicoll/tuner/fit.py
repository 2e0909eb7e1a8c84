"""alpha and beta out of times: lines through the times of messages, one below and one above the MPI's eager limit."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from ..cost import Wire

FASTEST = 1e-12  # seconds for a byte, 1 TB/s: no link is faster, though short messages may all take the same time
LEAST = 3  # lengths on each side of the limit
GOOD = 0.02  # a line that is off by no more, on average, does
BETTER = 0.5  # two lines are taken only if they leave less than this share of what one line leaves


def line(times: Mapping[int, float]) -> tuple[float, float, float]:
    """(alpha, beta, what is left): the line alpha + n beta nearest to the times, beta not below FASTEST.

    Nearest in proportion: what is left is the sum of ((alpha + n beta) / time - 1) squared, so that short messages
    count as much as long ones.
    """
    n, seconds = np.array(list(times), float), np.array(list(times.values()))
    columns = np.stack([1 / seconds, n / seconds], axis=1)
    scale = np.maximum(columns.max(axis=0), 1e-300)
    found = np.linalg.lstsq(columns / scale, np.ones(len(n)), rcond=None)[0] / scale
    if found[0] < 0 or found[1] < FASTEST:  # the best within the limits has one of them at its limit
        inverse, rate = columns.T
        alpha = max(0.0, float(inverse @ (1 - FASTEST * rate) / (inverse @ inverse)))
        choices = [np.array([alpha, FASTEST]), np.array([0.0, max(FASTEST, rate.sum() / (rate @ rate))])]
        found = min(choices, key=lambda pair: float(np.square(columns @ pair - 1).sum()))
    return float(found[0]), float(found[1]), float(np.square(columns @ found - 1).sum())


def wire(times: Mapping[int, float]) -> Wire:
    """The Wire nearest to the seconds of messages of these lengths; two regimes only where one line does not do."""
    lengths = sorted(times)
    alpha, beta, left = line(times)
    best = Wire(alpha, beta)
    least = BETTER * left
    for i in range(LEAST, len(lengths) - LEAST + 1) if left > len(times) * GOOD**2 else ():
        low, high = (line({n: times[n] for n in part}) for part in (lengths[:i], lengths[i:]))
        if low[2] + high[2] < least:
            least = low[2] + high[2]
            best = Wire(low[0], low[1], lengths[i - 1], high[0], high[1])
    return best


def error(predicted: float, measured: float) -> float:
    """By how much the prediction is off: 0.1 is 10 %; half the time is as wrong as double the time."""
    return math.exp(abs(math.log(predicted / measured))) - 1
