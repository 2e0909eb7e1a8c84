"""Self-consistency: no collective may be slower than others that together do the same.

The guidelines are those of Traff, Gropp & Thakur ("Self-Consistent MPI Performance Guidelines", TPDS 2010). Every part
of a line gets the same whole buffer, so n bytes are n bytes on both sides. A line that does not hold is a finding about
the choice of algorithms, and what to do is on the right side.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ..rules import binary
from ..simulation.text import table
from ..simulation.units import in_time
from . import calls
from .timing import Watch, race

GUIDELINES = (
    ("allreduce", ("reduce", "broadcast")),
    ("allreduce", ("reduce_scatter", "allgather")),
    ("reduce_scatter", ("reduce", "scatter")),
    ("reduce_scatter", ("allreduce",)),
    ("allgather", ("gather", "broadcast")),
    ("allgather", ("alltoall",)),
    ("broadcast", ("scatter", "allgather")),
    ("reduce", ("reduce_scatter", "gather")),
    ("reduce", ("allreduce",)),
    ("gather", ("allgather",)),
    ("scatter", ("broadcast",)),
)
SIZES = (1 << 10, 1 << 15, 1 << 20, 1 << 23)  # bytes: 1 KiB, 32 KiB, 1 MiB, 8 MiB
NOISE = 0.1  # of the composition's time


class Line(NamedTuple):
    """A guideline at one size: seconds of the collective and of what it is to be no slower than."""

    collective: str
    parts: tuple[str, ...]
    nbytes: int
    alone: float
    composed: float

    @property
    def ratio(self) -> float:
        return self.alone / self.composed

    @property
    def holds(self) -> bool:
        """Whether it is not slower, beyond noise."""
        return self.ratio <= 1 + NOISE


def check(times: Mapping[int, Mapping[str, float]]) -> list[Line]:
    """Every guideline at every size, out of the seconds of each collective at each size."""
    return [
        Line(collective, parts, nbytes, at[collective], sum(at[part] for part in parts))
        for collective, parts in GUIDELINES
        for nbytes, at in sorted(times.items())
    ]


def measure(watch: Watch, comm: Any, nbytes: int, seconds: float) -> dict[str, float]:
    """The seconds of every collective of the guidelines with the algorithm that auto takes, at one size."""
    names = sorted({name for collective, parts in GUIDELINES for name in (collective, *parts)})
    return race(watch, {name: calls.maker(comm, name, nbytes)(None) for name in names}, seconds, drop=False)


def text(lines: list[Line]) -> list[str]:
    """The table for people, and what does not hold."""
    rows = [
        (
            line.collective,
            " + ".join(line.parts),
            binary(line.nbytes),
            in_time(line.alone),
            in_time(line.composed),
            f"{line.ratio:.2f}",
            "" if line.holds else "SLOWER",
        )
        for line in lines
    ]
    found = [line for line in lines if not line.holds]
    verdict = f"All {len(lines)} hold, within {NOISE:.0%}."
    if found:
        worst = max(found, key=lambda line: line.ratio)
        verdict = (
            f"{len(found)} of {len(lines)} do not hold; the worst: {worst.collective} of {binary(worst.nbytes)} takes "
            f"{worst.ratio:.2f} times as long as {' + '.join(worst.parts)}."
        )
    header = ("collective", "no slower than", "bytes", "takes", "composed", "ratio", "")
    return [*table(header, rows, "llrrrrl"), "", verdict]
