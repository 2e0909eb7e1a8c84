"""The runs in the world by which an algorithm is proven: ranks, counts, roots, places and options."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from .. import cost
from ..algorithms import FAMILIES, SAME_LENGTH, cut

ROOTED = ("broadcast", "reduce", "gather", "scatter")
NOT_IN_PLACE = ("broadcast", "alltoall", "barrier")


class Case(NamedTuple):
    """A run in the world."""

    counts: Sequence[Any]
    root: int = 0
    in_place: bool = False
    options: dict[str, Any] = {}  # noqa: RUF012 a default that nobody changes

    def __str__(self) -> str:
        options = "".join(f", {name} {value}" for name, value in self.options.items())
        place = ", in place" if self.in_place else ""
        return f"{len(self.counts)} ranks, counts {list(self.counts)}, root {self.root}{place}{options}"


def cases(collective: str, algorithm: str, max_size: int) -> Iterator[Case]:
    """All counts for sizes 1 to 17, uneven ones and options for small sizes, size + 1 for each size up to max_size.

    Above 17 it is every sixth size if the messages, or the elements to look at, grow as the square of the size.
    """
    places = (False,) if collective in NOT_IN_PLACE else (False, True)

    def chunks(count: int, size: int) -> tuple[int, ...]:
        one_length = (collective, algorithm) in SAME_LENGTH
        return cut.even(-(-count // size) * size if one_length else count, size)

    for size in range(1, min(17, max_size) + 1):
        counts = {0, 1, size - 1, size, size + 1, 2, 7, 37} if collective != "barrier" else {0}
        for lengths in sorted({chunks(count, size) for count in counts}):
            for root in roots(collective, size):
                by_turns = (places[(root + size) % len(places)],)
                tried = by_turns if sum(lengths) in (2, 7, 37) and size > 3 else places
                yield from (Case(lengths, root, in_place) for in_place in tried)
    for size in range(1, min(9, max_size) + 1):
        for unlike in uneven(collective, size) if (collective, algorithm) not in SAME_LENGTH else []:
            yield from (Case(unlike, size // 2 if collective in ROOTED else 0, in_place) for in_place in places)
        for options in swept(collective, algorithm, size):
            for count in (0, size + 1, 5 * size):
                yield Case(chunks(count, size), size // 2 if collective in ROOTED else 0, bool(count % 2), options)
    messages = sum(cost.of(collective, algorithm, rank, [1] * 17, 1).messages for rank in range(17))
    every = 6 if messages >= 17 * 16 or collective == "alltoall" else 1
    for number, size in enumerate(range(max_size, 17, -every)):
        root = size // 3 if collective in ROOTED else 0
        yield Case(chunks(size + 1, size), root, places[number % len(places)])


def roots(collective: str, size: int) -> list[int]:
    return sorted({0, size // 2, size - 1}) if collective in ROOTED else [0]


def uneven(collective: str, size: int) -> list[Sequence[Any]]:
    """Chunks of different lengths; in an all-to-all every pair of ranks has its own."""
    counts: list[Sequence[Any]] = [range(size), [0] * (size - 1) + [9], [3 * rank % 5 for rank in range(size)]]
    table = [[(3 * source + 5 * dest) % 7 for dest in range(size)] for source in range(size)]
    return [*counts, table] if collective == "alltoall" else counts


def swept(collective: str, algorithm: str, size: int) -> list[dict[str, Any]]:
    """The algorithm's options, with the values that are tried on so many ranks."""
    two, odd = [rank * 2 // size for rank in range(size)], [min(rank % 3, 1) for rank in range(size)]
    values: dict[str, list[Any]] = {
        "segments": [2, 3, 5],
        "channels": [2, 3],
        "parts": [2, 3],
        "aggregate": [1, 2, 4],
        "near": [True],
        "nodes": [two, odd],
    }
    takes = inspect.signature(FAMILIES[collective][algorithm]).parameters
    found = [{name: value} for name in values if name in takes for value in values[name]]
    return found + [{"nodes": nodes, "parts": 2} for nodes in values["nodes"] if "nodes" in takes and "parts" in takes]
