"""How a buffer is cut into pieces: chunks, one for each rank, and segments of a chunk for pipelining."""

import functools
import itertools
from collections.abc import Iterable, Sequence
from typing import Any

from ..language import Array, Comm


class Pieces(list[Array]):
    """The views of one array, `whole`, cut at `positions`; so neighbours among them can be had as one view."""

    __slots__ = ("positions", "whole")

    def __init__(self, whole: Array, positions: Sequence[int]) -> None:
        super().__init__(whole[a:b] for a, b in itertools.pairwise(positions))
        self.whole, self.positions = whole, positions


def bounds(count: int, parts: int) -> list[int]:
    """parts + 1 positions that cut `count` elements into parts as even as possible, the longer ones first."""
    short, longer = divmod(count, parts)
    return [i * short + min(i, longer) for i in range(parts + 1)]


@functools.lru_cache(maxsize=256)
def even(count: int, parts: int) -> tuple[int, ...]:
    """The lengths of the parts into which `bounds` cuts `count` elements."""
    return tuple(b - a for a, b in itertools.pairwise(bounds(count, parts)))


def cut(array: Array, parts: int) -> Pieces:
    """The array's views in `parts` pieces as even as possible, the longer ones first."""
    return Pieces(array, bounds(len(array), parts))


def split(array: Array, counts: Sequence[int]) -> Pieces:
    """The array's views in pieces of the given counts, which add up to its length, or to less than that."""
    return Pieces(array, list(itertools.accumulate(counts, initial=0)))


def runs(pieces: Sequence[Array], indices: Iterable[int]) -> list[Array]:
    """Views that hold the pieces with these indices, in this order; pieces side by side in one array are one view."""
    if not isinstance(pieces, Pieces):
        return [pieces[i] for i in indices]
    spans: list[tuple[int, int]] = []
    for i in indices:
        first = spans.pop()[0] if spans and spans[-1][1] == i else i
        spans.append((first, i + 1))
    return [pieces.whole[pieces.positions[first] : pieces.positions[stop]] for first, stop in spans]


def joined(comm: Comm, views: Sequence[Array]) -> tuple[Array, list[tuple[Array, Array]]]:
    """One array for the content of these views, and the pairs (part of it, view) that are to be copied, one way or the
    other: none if there is a single view, which is then the array itself; otherwise it is scratch memory."""
    if len(views) == 1:
        return views[0], []
    array = comm.scratch(*views)
    return array, list(zip(split(array, [len(view) for view in views]), views, strict=True))


def same_length(name: str, arrays: Sequence[Array]) -> None:
    """Nothing, or a ValueError if the arrays differ in length: a rank on their way could not know it."""
    lengths = [len(array) for array in arrays]
    if min(lengths) != max(lengths):
        raise ValueError(
            f"{name}: chunks of other ranks pass through a rank, so all have to be of one length; there are some of "
            f"{min(lengths)} and some of {max(lengths)} elements; take another algorithm"
        )


def rows(counts: Sequence[Any]) -> Sequence[Sequence[int]]:
    """What every rank of an all-to-all sends, rows(counts)[s][d] from s to d; counts may be one such row for all."""
    return counts if counts and isinstance(counts[0], (list, tuple)) else [counts] * len(counts)
