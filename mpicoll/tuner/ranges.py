"""Which algorithm wins where, out of times at some sizes: few ranges, each with its winner."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ..rules import Rule

TIE, NOISY = 0.05, 0.25  # who is within this share of the best time is as good, at least, and where times differ much


def rules(times: Mapping[int, Mapping[str, float]], noise: Mapping[int, float]) -> tuple[Rule, ...]:
    """The fewest ranges of bytes in each of which one algorithm is as good as the best at every size measured.

    The border between two sizes with different winners is in the (geometric) middle, and the last range has no end.
    Of algorithms that are good for equally many sizes, the one that takes the least time there is taken.

    Args:
        times: for each number of bytes the time of each algorithm that was measured there, in any unit.
        noise: by what share of them such times may be off.
    """
    sizes, first = sorted(times), 0
    good = {size: as_good(times[size], noise[size]) for size in sizes}
    found: list[Rule] = []
    while first < len(sizes):
        reach = {name: _reach(good, sizes, first, name) for name in good[sizes[first]]}
        last = max(reach.values())
        name = min((name for name in reach if reach[name] == last), key=lambda n: _sum(times, sizes[first:last], n))
        upto = middle(sizes[last - 1], sizes[last]) if last < len(sizes) else None
        found.append(Rule(upto, name))
        first = last
    return tuple(found)


def as_good(times: Mapping[str, float], noise: float) -> set[str]:
    """Those whose time is the best one, or so near that it could be."""
    limit = (1 + min(max(TIE, noise), NOISY)) * min(times.values())
    return {name for name, seconds in times.items() if seconds <= limit}


def _reach(good: Mapping[int, set[str]], sizes: list[int], first: int, name: str) -> int:
    """The index of the first size from `first` on at which the algorithm is not as good as the best."""
    return next((i for i in range(first, len(sizes)) if name not in good[sizes[i]]), len(sizes))


def _sum(times: Mapping[int, Mapping[str, float]], sizes: list[int], name: str) -> float:
    """The algorithm's time in times of the best, summed over the sizes."""
    return sum(times[size][name] / min(times[size].values()) for size in sizes)


def middle(a: int, b: int) -> int:
    """Between two sizes, a power of two where it can be: 64 KiB between 32 KiB and 128 KiB."""
    return max(a, min(b - 1, 1 << round((math.log2(max(a, 1)) + math.log2(b)) / 2)))


def over_places(places: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The mean over the places (out of place, in place) of an algorithm's time, in times of the best one there.

    Args:
        places: the seconds of the same algorithms in each.
    """
    best = [min(times.values()) for times in places]
    return {
        name: sum(times[name] / least for times, least in zip(places, best, strict=True)) / len(places)
        for name in places[0]
    }


def band(times: Mapping[int, Sequence[Mapping[bool, float]]]) -> tuple[int, int] | None:
    """The first and last of the neighbouring sizes where True saves the most time; None where it saves nothing.

    Args:
        times: of each size, in several places. What counts is the place where True saves the least.
    """
    sizes = sorted(times)
    saved = [min(math.log(at[False] / at[True]) for at in times[size]) - math.log(1 + TIE) for size in sizes]
    best, span = 0.0, None
    for i in range(len(sizes)):
        for j in range(i, len(sizes)):
            if sum(saved[i : j + 1]) > best:
                best, span = sum(saved[i : j + 1]), (sizes[i], sizes[j])
    return span
