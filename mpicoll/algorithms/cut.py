"""How a buffer is cut into pieces: chunks, one for each rank, and segments of a chunk for pipelining."""

import functools
import itertools
from collections.abc import Sequence
from typing import Any

from ..language import Array


def bounds(count: int, parts: int) -> list[int]:
    """parts + 1 positions that cut `count` elements into parts as even as possible, the longer ones first."""
    short, longer = divmod(count, parts)
    return [i * short + min(i, longer) for i in range(parts + 1)]


@functools.lru_cache(maxsize=256)
def even(count: int, parts: int) -> tuple[int, ...]:
    """The lengths of the parts into which `bounds` cuts `count` elements."""
    return tuple(b - a for a, b in itertools.pairwise(bounds(count, parts)))


def cut(array: Array, parts: int) -> list[Array]:
    """The array's views in `parts` pieces as even as possible, the longer ones first."""
    return [array[a:b] for a, b in itertools.pairwise(bounds(len(array), parts))]


def split(array: Array, counts: Sequence[int]) -> list[Array]:
    """The array's views in pieces of the given counts, which add up to its length."""
    ends = list(itertools.accumulate(counts))
    return [array[end - count : end] for end, count in zip(ends, counts, strict=True)]


def rows(counts: Sequence[Any]) -> Sequence[Sequence[int]]:
    """What every rank of an all-to-all sends, rows(counts)[s][d] from s to d; counts may be one such row for all."""
    return counts if counts and isinstance(counts[0], (list, tuple)) else [counts] * len(counts)
