"""What a GPU has to hold, and what it is: memory under plain data parallelism and ZeRO (arXiv 1910.02054).

Mixed-precision Adam keeps 16 bytes per parameter: 2 of weight and 2 of gradient (bf16), and in fp32 4 of master weight,
4 of m and 4 of v. Activations come on top. A stage divides its part by the number of GPUs:

    plain 16      ZeRO-1 4 + 12/N      ZeRO-2 2 + 14/N      ZeRO-3 16/N
"""

from __future__ import annotations

import math
from typing import NamedTuple


class Gpu(NamedTuple):
    """A GPU: FLOP/s (dense bf16), B/s of its memory, bytes of its memory."""

    peak: float
    hbm: float
    memory: float


H100 = Gpu(990e12, 3.35e12, 80e9)

WEIGHT, GRADIENT, OPTIMIZER = 2, 2, 12
BYTES_PER_PARAMETER = WEIGHT + GRADIENT + OPTIMIZER
# What a step moves through a GPU's memory per parameter at least: forward and backward read the weight, backward writes
# the gradient, the optimizer reads it, reads and writes its state and writes the weight. Activations come on top.
TRAFFIC_PER_PARAMETER = 2 * WEIGHT + 2 * GRADIENT + 2 * OPTIMIZER + WEIGHT


class Stage(NamedTuple):
    """One way to place the state.

    Attributes:
        replicated, sharded: bytes per parameter that every GPU holds, and that are divided by the number of GPUs.
        messages: bytes that a GPU sends in a step, in units of (N-1)/N times the weights: reduce-scatters and
            all-gathers; an all-reduce is one of each.
    """

    name: str
    replicated: int
    sharded: int
    messages: int

    def per_parameter(self, size: int) -> float:
        """Bytes per parameter on each of `size` GPUs."""
        return self.replicated + self.sharded / size

    def least_size(self, parameters: float, memory: float) -> int | None:
        """The fewest GPUs on which the state fits in `memory` bytes each; None if no number of them is enough."""
        room = memory - self.replicated * parameters
        if self.sharded == 0:
            return 1 if room >= 0 else None
        return max(1, math.ceil(self.sharded * parameters / room)) if room > 0 else None


STAGES = (
    Stage("plain data parallelism", BYTES_PER_PARAMETER, 0, 2),
    Stage("ZeRO-1: optimizer state sharded", WEIGHT + GRADIENT, OPTIMIZER, 2),
    Stage("ZeRO-2: gradients, too", WEIGHT, GRADIENT + OPTIMIZER, 2),
    Stage("ZeRO-3: weights, too (FSDP)", 0, BYTES_PER_PARAMETER, 3),
)
