"""How much memory a measurement takes, and whether there is so much."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mpi4py import MPI

from ..simulation.units import in_bytes


def available() -> int:
    """The bytes that programs of this node can still take: what the kernel says, or less if a cgroup allows less."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    group = Path("/sys/fs/cgroup")
    try:
        limit, used = ((group / name).read_text().strip() for name in ("memory.max", "memory.current"))
    except OSError:  # no such cgroup
        return free
    return free if limit == "max" else min(free, int(limit) - int(used))


def told(need: int) -> str:
    return f"memory: up to {in_bytes(need)} per rank for buffers and scratch"


def check(world: MPI.Intracomm, need: int, nodes: Sequence[int]) -> None:
    """Nothing, or on every rank a ValueError: the ranks of a node need more than it has. Collective."""
    there = world.allgather(available())
    for node in sorted(set(nodes)):
        ranks = [rank for rank, where in enumerate(nodes) if where == node]
        free = min(there[rank] for rank in ranks)
        if need * len(ranks) > free:
            raise ValueError(
                f"{len(ranks)} ranks of node {node} need up to {in_bytes(need)} each, and {in_bytes(free)} are free "
                f"there; take a smaller -e"
            )
