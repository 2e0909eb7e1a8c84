"""The collectives as calls that can be timed: of so many bytes, in any algorithm, in both places, again and again."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from .timing import Timed, rows_for

REDUCING = ("reduce", "allreduce", "reduce_scatter")


def fitting(nbytes: int, size: int) -> int:
    """The bytes next to `nbytes` that are float32 of which every rank has as many, one at least."""
    return max(1, nbytes // (4 * size)) * 4 * size


def places(collective: str) -> tuple[bool, ...]:
    """Whether it is measured in place: reductions are done both ways, and what they reduce into is not the same."""
    return (False, True) if collective in REDUCING else (False,)


def maker(comm: Any, collective: str, nbytes: int, in_place: bool = False) -> Callable[[str | None], Timed]:
    """make(algorithm) are calls of the collective on `nbytes` bytes of float32, a `fitting` number.

    The root moves on from call to call: a root that stays would run ahead of the others.
    """
    rows, count = rows_for(nbytes), nbytes // 4
    wholes, others = np.ones((rows, count), np.float32), np.ones((rows, 0 if in_place else count), np.float32)
    parts = np.ones((rows, count // comm.size), np.float32)
    sent = parts if collective in ("allgather", "gather") else wholes
    own = slice(comm.rank * count // comm.size, (comm.rank + 1) * count // comm.size)

    def arguments(row: int) -> tuple[object, ...]:
        """Views of its own for each call: a communicator remembers calls by their arrays, with all that decided."""
        whole, part, root = wholes[row], parts[row], row * comm.size // rows
        into = whole if in_place else others[row]
        on_root = root == comm.rank
        everywhere: dict[str, tuple[object, ...]] = {
            "broadcast": (whole, root),
            "reduce": (whole, into if on_root else None, "sum", root),
            "allreduce": (whole, into),
            "reduce_scatter": (whole, whole[own] if in_place else part),
            "allgather": (part, whole),
            "alltoall": (whole, into),
            "gather": (part, whole if on_root else None, root),
            "scatter": (whole if on_root else None, part, root),
            "barrier": (),
        }
        return everywhere[collective]

    method = getattr(comm, collective)

    def make(algorithm: str | None) -> Timed:
        calls = [partial(method, *arguments(row), algorithm=algorithm) for row in range(rows)]
        return Timed(calls, partial(sent.fill, 1))

    return make
