"""What every rank gives to a collective and gets from it."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

from .options import REDUCING
from .pattern import Part, Pattern, phase

CUT = ("reduce_scatter", "allgather", "alltoall", "gather", "scatter")  # the buffer has a part for each rank
IN_PLACE = {"broadcast": (True,), "alltoall": (False,), "sendrecv": (False,), "barrier": (False,)}


def places(collective: str) -> tuple[bool, ...]:
    """Whether it is done in place: False, True or, of most collectives, one after the other."""
    return IN_PLACE.get(collective, (False, True))


@dataclass(frozen=True)
class Case:
    """One collective of one size, as a rank sees it.

    Attributes:
        count: elements of the whole buffer, all ranks' parts together where it is cut.
        op, root: None where there is none.
        algorithm: what a call forces; None: the library chooses.
    """

    collective: str
    dtype: np.dtype[Any]
    op: str | None
    root: int | None
    rank: int
    size: int
    count: int

    @property
    def nbytes(self) -> int:
        return self.count * self.dtype.itemsize

    @property
    def shown_count(self) -> int:
        """As nccl-tests counts: of one part where the buffer is cut."""
        return self.count // self.size if self.collective in CUT else self.count

    @property
    def own(self) -> slice:
        """This rank's part of the whole buffer."""
        return slice(self.rank * self.count // self.size, (self.rank + 1) * self.count // self.size)

    def given(self, pattern: Pattern) -> list[Part] | None:
        """The content of sendbuf; None: this rank has none."""
        name, rank, n = self.collective, self.rank, self.count
        if name in REDUCING:
            return [Part(0, n, *pattern.contribution(rank))]
        if (name in ("broadcast", "scatter") and rank != self.root) or name == "barrier":
            return None
        if name in ("alltoall", "scatter"):
            return self._parts([phase(rank, dest) for dest in range(self.size)])
        return [Part(0, self.shown_count, "given", phase(rank))]

    def wanted(self, pattern: Pattern) -> list[Part] | None:
        """The content of recvbuf afterwards; None: this rank has none."""
        name, rank, n = self.collective, self.rank, self.count
        if (name in ("reduce", "gather") and rank != self.root) or name == "barrier":
            return None
        if name in ("reduce", "allreduce"):
            return [Part(0, n, "reduced", 0)]
        if name == "reduce_scatter":
            return [Part(0, self.shown_count, "reduced", self.own.start)]
        if name in ("allgather", "gather"):
            return self._parts([phase(source) for source in range(self.size)])
        if name == "alltoall":
            return self._parts([phase(source, rank) for source in range(self.size)])
        if name == "scatter":
            return [Part(0, self.shown_count, "given", phase(self.root or 0, rank))]
        source = (rank - 1) % self.size if self.root is None else self.root
        return [Part(0, n, "given", phase(source))]

    def _parts(self, phases: list[int]) -> list[Part]:
        each = self.count // self.size
        return [Part(i * each, (i + 1) * each, "given", first) for i, first in enumerate(phases)]


def whole(collective: str, nbytes: int, itemsize: int, size: int) -> int:
    """The elements of a buffer of about `nbytes` bytes: rounded down to whole ones for every rank, at least one."""
    if collective == "barrier":
        return 0
    each = size if collective in CUT else 1
    return max(1, nbytes // (itemsize * each)) * each


@functools.lru_cache(maxsize=4)
def pattern_of(dtype: np.dtype[Any], op: str | None, size: int, place: Any) -> Pattern:
    return Pattern(dtype, op, size, place)
