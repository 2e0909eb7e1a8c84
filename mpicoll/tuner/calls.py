"""The collectives as calls that can be timed: of so many bytes, in any algorithm, again and again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .timing import Timed


def fitting(nbytes: int, size: int) -> int:
    """The bytes next to `nbytes` that are float32 of which every rank has as many, one at least."""
    return max(1, nbytes // (4 * size)) * 4 * size


def maker(comm: Any, collective: str, nbytes: int) -> Callable[[str | None], Timed]:
    """make(algorithm) is a function that performs the collective on `nbytes` bytes of float32, a `fitting` number.

    Its argument is the call's number, by which the root moves on: a root that stays would run ahead of the others.
    """
    whole, other = (np.ones(nbytes // 4, np.float32) for _ in range(2))  # zeros would all be one page of memory
    part = np.ones(nbytes // 4 // comm.size, np.float32)

    def arguments(root: int) -> tuple[object, ...]:
        on_root = root == comm.rank
        everywhere: dict[str, tuple[object, ...]] = {
            "broadcast": (whole, root),
            "reduce": (whole, other if on_root else None, "sum", root),
            "allreduce": (whole, other),
            "reduce_scatter": (whole, part),
            "allgather": (part, whole),
            "alltoall": (whole, other),
            "gather": (part, whole if on_root else None, root),
            "scatter": (whole if on_root else None, part, root),
            "barrier": (),
        }
        return everywhere[collective]

    method, of_root = getattr(comm, collective), [arguments(root) for root in range(comm.size)]

    def make(algorithm: str | None) -> Timed:
        return lambda number: method(*of_root[number % len(of_root)], algorithm=algorithm)

    return make
