"""Real data: NumPy arrays of any type, reduced by a named operation."""

from __future__ import annotations

import numpy as np

from .memory import Memory

UFUNCS = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum, "avg": np.add}


class Numbers:
    """The operation `op` ("sum", "prod", "max", "min", "avg") of a world of `size` ranks, as the world calls it."""

    def __init__(self, op: str, size: int) -> None:
        self._ufunc, self._divisor = UFUNCS[op], size if op == "avg" else None

    def scratch(self, like: Memory, count: int) -> Memory:
        array = np.empty(count, like.dtype)
        self.poison(array)
        return array

    def poison(self, array: Memory) -> None:
        """Bytes of ones: NaN in every float, -1 or the largest value in integers."""
        array.view(np.uint8).fill(0xFF)

    def read(self, array: Memory) -> Memory:
        return array

    def copy(self, out: Memory, array: Memory) -> None:
        out[:] = array

    def reduce(self, out: Memory, a: Memory, b: Memory) -> None:
        self._ufunc(a, b, out=out)

    def finish(self, out: Memory) -> None:
        if self._divisor:
            np.divide(out, self._divisor, out=out)
