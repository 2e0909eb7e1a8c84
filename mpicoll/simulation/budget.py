"""FLOPs, GPU hours and days of a training run; the arithmetic of the global batch."""

from __future__ import annotations

from typing import NamedTuple

from .units import HOUR


class Budget(NamedTuple):
    """A training run; what was not said and does not follow is None.

    Attributes:
        flops: 6 N D for N parameters and D tokens: forward 2, backward 4 per parameter and token.
        mfu: the share of the GPUs' peak that is useful FLOPs.
        gpu_seconds: of one GPU, or of all together.
        seconds: with `gpus` of them.
    """

    flops: float | None
    mfu: float | None
    gpu_seconds: float
    gpus: int
    seconds: float


def budget(flops: float | None, mfu: float, gpu_hours: float | None, gpus: int, peak: float) -> Budget:
    """The run of so many FLOPs at an MFU, or of so many GPU hours; from both follows the MFU.

    Raises:
        ValueError: neither FLOPs nor GPU hours are given.
    """
    if gpu_hours is not None:
        gpu_seconds = gpu_hours * HOUR
        reached = flops / (gpu_seconds * peak) if flops is not None else None
        return Budget(flops, reached, gpu_seconds, gpus, gpu_seconds / gpus)
    if flops is None:
        raise ValueError("a budget needs --flops, or --parameters and --tokens, or --gpu-hours")
    gpu_seconds = flops / (peak * mfu)
    return Budget(flops, mfu, gpu_seconds, gpus, gpu_seconds / gpus)


class Batch(NamedTuple):
    """global_batch = local * gpus * accumulation samples per optimizer step."""

    local: int
    gpus: int
    accumulation: int
    global_batch: int


def batch(local: int, gpus: int, accumulation: int | None = None, global_batch: int | None = None) -> Batch:
    """The batch of which accumulation or the global batch is given; with neither, nothing is accumulated.

    Raises:
        ValueError: the global batch does not divide by local * gpus, or both are given and disagree.
    """
    at_once = local * gpus
    if global_batch is None:
        accumulation = accumulation or 1
        return Batch(local, gpus, accumulation, at_once * accumulation)
    if global_batch % at_once:
        below, above = global_batch // at_once * at_once, (global_batch // at_once + 1) * at_once
        near = f"{below} or {above}" if below else f"{above}"
        raise ValueError(
            f"a global batch of {global_batch} does not divide by {local} samples on each of {gpus} GPUs; {near} would"
        )
    derived = global_batch // at_once
    if accumulation is not None and accumulation != derived:
        raise ValueError(
            f"{local} samples x {gpus} GPUs x accumulation {accumulation} is {at_once * accumulation}, "
            f"not a global batch of {global_batch}; leave one of them out"
        )
    return Batch(local, gpus, derived, global_batch)
