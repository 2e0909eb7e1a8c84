"""Times of all algorithms over sizes, and of the segments that a pipeline has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from ..algorithms import ring
from . import calls
from .ranges import TIE
from .timing import LAP, WARM, Watch, race

SIZES = tuple(8 << power for power in range(0, 22, 2))  # 8 B to 8 MiB, by 4
SEGMENTS = tuple(1 << power for power in range(16, 22))  # 64 KiB to 2 MiB
PIPELINES = (("allreduce", 4 << 20), ("allreduce", 16 << 20), ("broadcast", 4 << 20))
HOPELESS = 6.0  # times the shortest predicted time: not measured
RUNS = WARM + LAP  # of each candidate, at least


def sizes(collective: str, size: int) -> tuple[int, ...]:
    """The sizes in bytes at which the algorithms of a collective are measured."""
    if collective == "barrier":
        return (0,)
    return tuple(sorted({calls.fitting(nbytes, size) for nbytes in SIZES}))


def contenders(predicted: Mapping[str, float], seconds: float) -> list[str]:
    """Who is measured: the best by prediction, as many as there is time for, two at least; none that is hopeless."""
    names, planned = sorted(predicted, key=predicted.__getitem__), 0.0
    found: list[str] = []
    for name in names:
        planned += RUNS * predicted[name]
        if len(found) >= 2 and (planned > seconds or predicted[name] > HOPELESS * predicted[names[0]]):
            break
        found.append(name)
    return found


def segment(watch: Watch, comm: Any, seconds: float) -> int:
    """The bytes of a segment with which the ring is the fastest, over PIPELINES."""
    links = comm.links

    def cut(nbytes: int) -> None:
        comm.links = links._replace(segment=nbytes)

    found = []
    for collective, nbytes in PIPELINES:
        make = calls.maker(comm, collective, calls.fitting(nbytes, comm.size))
        candidates = {segment: make("ring").within(partial(cut, segment)) for segment in SEGMENTS}
        found.append(race(watch, candidates, seconds / len(PIPELINES)))
    comm.links = links
    return best_segment(found)


def best_segment(found: Sequence[Mapping[int, float]]) -> int:
    """The segment that takes the least in times of the best; the usual one if that is as good.

    Args:
        found: for each pipeline the seconds with each segment.
    """

    def mean(nbytes: int) -> float:
        return sum(times[nbytes] / min(times.values()) for times in found) / len(found)

    best = min(SEGMENTS, key=mean)
    return ring.SEGMENT_BYTES if mean(ring.SEGMENT_BYTES) <= (1 + TIE) * mean(best) else best
