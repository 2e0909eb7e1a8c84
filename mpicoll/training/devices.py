"""The device that a rank trains on: found before MPI starts, agreed on by all ranks afterwards.

CUDA-aware MPIs look at the current device when they start, so the GPU is chosen before; and no rank may go its own way,
since messages between a GPU and a CPU would be of two kinds of arrays.
"""

import os
import platform
from typing import NamedTuple

import numpy as np

from .. import gpu, runtime


class Found(NamedTuple):
    """What a rank has: the number and the name of its GPU, or why it has none; `where` tells GPUs apart."""

    number: int | None
    name: str = ""
    why: str = ""
    where: tuple[object, ...] = ()


def find(wanted):
    """What this rank can train on; its GPU, if there is one, is the current device. Comes before MPI starts.

    Args:
        wanted: "auto", "cpu" or "gpu".
    """
    if wanted == "cpu":
        return Found(None)
    count, why = gpu.find()
    if not count:
        return Found(None, why=why)
    try:
        number = gpu.choose(runtime.launched_local_rank())
    except RuntimeError as error:  # another process has it for itself, say
        return Found(None, why=f"a GPU is there, but cannot be used: {error}")
    return Found(number, gpu.name(number), where=(platform.node(), os.environ.get("CUDA_VISIBLE_DEVICES"), number))


def agree(world, wanted, found):
    """(place, words): what brings an array to the device of this rank, and what the heading says of it on rank 0.

    All ranks train on GPUs or all on CPUs. Collective, in MPI's own calls.

    Raises:
        ValueError: on every rank; GPUs are wanted and a rank has none.
    """
    if wanted == "cpu":
        return np.asarray, "CPU"
    everyone = world.allgather(found)
    without = [rank for rank, other in enumerate(everyone) if other.number is None]
    if without:
        who = "there is no GPU" if len(without) == len(everyone) else f"rank {without[0]} has no GPU"
        why = f"{who}: {everyone[without[0]].why}"
        if wanted == "gpu":
            raise ValueError(f"--device gpu: {why}; with --device auto all train on CPUs then")
        return np.asarray, f"CPU; {why}"
    from .. import probe

    verdict = probe.cuda_aware()
    sharing = sum(other.where == found.where for other in everyone)
    words = f"GPU {found.number} ({found.name})"
    words += f", shared by {sharing} ranks of this node" if sharing > 1 else ""
    words += f"; messages {'from device memory' if verdict.aware else 'staged through host memory'} ({verdict.why})"
    return gpu.place, words
