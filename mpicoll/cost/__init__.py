"""Closed forms: what each algorithm costs a rank, and how long it takes on links of a given alpha, beta and gamma.

Integer arithmetic on (rank, size, counts), exact for every rank, also where the cut is uneven; the tests hold it
against what the world counts. Where p divides n the sums over the cut are the terms known from the literature: a ring's
reduce-scatter or all-gather sends (p-1)/p n in p-1 steps and reduces (p-1)/p n, an all-reduce both, so 2(p-1)/p n
(Patarasuk & Yuan 2009); recursive doubling sends and reduces lg p times n, and a rank of a pair up to 2 n and n more; a
binomial tree is left after ceil(lg p) transfers of n (Thakur, Rabenseifner & Gropp 2005). `predict` gives the times
that such formulas state; the tests hold it against them, too.

Each algorithm's module here has a function for each of its collectives: form(rank, chunks, itemsize, root, **options),
with the chunks in bytes (those of an all-to-all in elements). Where ranks wait for one another down a chain, a function
`COLLECTIVE_path` gives the cost of that path.

Where links are not alike, `crossed` says what each kind carries and `Machine` how long it takes, by running the
algorithms themselves.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..algorithms import FAMILIES, parameters
from ..algorithms.cut import even, rows
from .bounds import Bounds, bounds, busbw_factor
from .machine import Bound, Crossed, Machine, crossed, link_of
from .model import Cost, Wire, time, time_on

__all__ = [
    "Bound",
    "Bounds",
    "Cost",
    "Crossed",
    "Machine",
    "Wire",
    "bounds",
    "busbw_factor",
    "busiest",
    "crossed",
    "link_of",
    "of",
    "predict",
    "time",
    "time_on",
]


@functools.cache
def _form(collective: str, algorithm: str, suffix: str = "") -> Callable[..., Cost] | None:
    """The closed form, in the module that is named as the algorithm's."""
    found: Callable[..., Cost] | None
    found = getattr(importlib.import_module(f"{__name__}.{algorithm}"), collective + suffix, None)
    return found


def of(
    collective: str,
    algorithm: str,
    rank: int,
    counts: Sequence[Any],
    itemsize: int,
    root: int = 0,
    channels: int = 1,
    **options: Any,
) -> Cost:
    """The Cost of a rank of len(counts) ranks, with counts[r] elements of itemsize bytes in rank r's chunk.

    Collectives that do not cut their buffer move sum(counts) elements; a barrier none. In an all-to-all every rank
    sends counts[r] elements to rank r; or counts[s][d] are those from rank s to rank d. The costs of several channels
    add up.
    """
    if channels != 1:
        total = Cost()
        for order, part in _channels(collective, algorithm, counts, channels):
            places = order.index(rank), order.index(root)
            total += of(collective, algorithm, places[0], part, itemsize, places[1], **options)
        return total
    form = _form(collective, algorithm)
    if form is None:
        raise ValueError(f"cost.of: {algorithm} has no {collective}")
    return form(rank, _in_bytes(collective, counts, itemsize), itemsize, root, **options)


def predict(
    collective: str,
    algorithm: str,
    counts: Sequence[Any],
    itemsize: int,
    alpha: float,
    beta: float,
    gamma: float,
    root: int = 0,
    channels: int = 1,
    **options: Any,
) -> float:
    """The seconds that the collective takes in the alpha-beta-gamma model; arguments as in `of` and `time`.

    That is the longest `time` of any rank or, down a chain of ranks, where one waits for the other, the time of that
    path. Apart from reductions that are hidden it is a lower bound: other waiting is left out, and so is contention,
    as if no two ranks shared a link.
    """
    costs = busiest(collective, algorithm, counts, itemsize, root, channels, **options)
    return max(time(cost, alpha, beta, gamma) for cost in costs)


def busiest(
    collective: str,
    algorithm: str,
    counts: Sequence[Any],
    itemsize: int,
    root: int = 0,
    channels: int = 1,
    **options: Any,
) -> list[Cost]:
    """The Costs among which is the one that takes the longest: those of ranks, or of a chain; arguments as in `of`.

    Of more than 64 ranks only a few are looked at; if the chunks are cut evenly, the busiest is among them, or in `pat`
    one that is as busy but for an element.
    """
    if path := _form(collective, algorithm, "_path"):
        parts = [part for _, part in _channels(collective, algorithm, counts, channels)]
        paths = [path(_in_bytes(collective, part, itemsize), itemsize, **options) for part in parts]
        return [sum(paths, Cost())]
    size = len(counts)
    few = 0, 1, size - 2, size - 1, (root - 1) % size, root, (root + 1) % size, counts.index(max(counts))
    ranks = range(size) if size <= 64 else set(few)
    return [of(collective, algorithm, rank, counts, itemsize, root, channels, **options) for rank in ranks]


def _channels(
    collective: str, algorithm: str, counts: Sequence[Any], channels: int
) -> Iterator[tuple[range, Sequence[Any]]]:
    """Every channel's order of ranks, and the counts of its part in that order."""
    if channels == 1:
        yield range(len(counts)), counts
        return
    names = parameters(FAMILIES[collective][algorithm])
    if "channels" not in names:
        raise ValueError(f"cost: channels is {channels}, but {algorithm} has none for {collective}")
    for k in range(channels):
        order = range(len(counts))[:: -1 if k % 2 else 1]
        if "chunks" in names or "result_chunks" in names:
            yield order, [even(counts[rank], channels)[k] for rank in order]
        else:
            yield order, even(even(sum(counts), channels)[k], len(counts))


def _in_bytes(collective: str, counts: Sequence[Any], itemsize: int) -> Sequence[Any]:
    if collective == "barrier":
        return [0] * len(counts)
    if collective == "alltoall":  # a table; its form converts what it needs
        return rows(counts)
    return [count * itemsize for count in counts]
