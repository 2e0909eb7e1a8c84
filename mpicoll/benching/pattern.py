"""Numbers with which every result is known exactly, whoever adds them up in whatever order.

They repeat with a prime period, so an element at a wrong place is a wrong element; and what a rank gives and expects is
a slice of a short tile, so writing and checking cost what copying costs, and 8 GiB need no second buffer. Every call
moves on in the tile by one, so what an earlier call has left behind is not what this one should.

Floats are integers so small that no sum rounds, or powers of two for products; integers are any bits, since their sums
and products wrap in any order to the same bits. Division by the number of ranks, for avg, rounds once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from ..arrays import parts as real_parts

PERIOD = 8191  # elements, a prime: no power of two is a multiple
BLOCK = 1 << 16  # elements written or compared at a time: they stay in a core's cache
UFUNCS = {"sum": np.add, "avg": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}


class Part(NamedTuple):
    """Elements start to stop of a buffer are those of the tile `name` from place `phase` on."""

    start: int
    stop: int
    name: str
    phase: int


class Wrong(NamedTuple):
    """The first element that is not as it should be."""

    at: int
    expected: Any
    got: Any


class Pattern:
    """The tiles for a type, an operation and a number of ranks.

    Attributes:
        active: so many ranks take part with numbers, the others with neutral ones; more would make sums too large.
        tiles: "given", "neutral" and, if there is an op, "reduced", by name.
        poison: the same with every bit turned round: no element of it is right.
    """

    def __init__(self, dtype: np.dtype[Any], op: str | None, size: int, place: Any = np.asarray) -> None:
        given, self.active = _numbers(dtype, op, size, np.random.default_rng(20240607))
        tiles = {"given": given, "neutral": np.full(PERIOD, op == "prod").astype(dtype)}
        if op is not None:
            total: np.ndarray[Any, Any] | None = None
            for rank in range(size):
                name, phase = self.contribution(rank)
                mine = np.roll(tiles[name], -phase)
                total = mine if total is None else UFUNCS[op](total, mine)
            assert total is not None
            if op == "avg":
                np.divide(real_parts(total), size, real_parts(total))
            tiles["reduced"] = total
        tiles = {name: np.resize(tile, PERIOD + BLOCK) for name, tile in tiles.items()}
        self.tiles = {name: place(tile) for name, tile in tiles.items()}
        self.poison = {name: place(_inverted(tile)) for name, tile in tiles.items()}

    def contribution(self, rank: int) -> tuple[str, int]:
        """The tile and the phase of what a rank gives to a reduction."""
        return ("given", phase(rank)) if rank < self.active else ("neutral", 0)


def phase(source: int, dest: int = 0) -> int:
    """Where in the tile the numbers begin that `source` has for `dest`."""
    return (577 * source + 101 * dest) % PERIOD


def write(array: Any, content: Sequence[Part], tiles: dict[str, Any], shift: int) -> None:
    """The array holds the content, moved on by `shift`."""
    for start, stop, tile in _blocks(content, tiles, shift):
        array[start:stop] = tile


def mistakes(array: Any, content: Sequence[Part], tiles: dict[str, Any], shift: int) -> tuple[int, Wrong | None]:
    """How many elements are not as they should be, and the first of them."""
    count, first = 0, None
    for start, stop, tile in _blocks(content, tiles, shift):
        got = array[start:stop]
        right = got.view("uint8") == tile.view("uint8") if got.dtype.kind == "b" else got == tile
        if not right.all():
            count += int((~right).sum())
            index = int(right.argmin())
            first = first or Wrong(start + index, tile[index].item(), got[index].item())
    return count, first


def _blocks(content: Sequence[Part], tiles: dict[str, Any], shift: int) -> Iterator[tuple[int, int, Any]]:
    for start, stop, name, first in content:
        tile = tiles[name]
        for begin in range(start, stop, BLOCK):
            end = min(begin + BLOCK, stop)
            offset = (first + shift + begin - start) % PERIOD
            yield begin, end, tile[offset : offset + end - begin]


def _inverted(tile: np.ndarray) -> np.ndarray:
    if tile.dtype.kind == "b":
        return ~tile
    return (~tile.view("uint8")).view(tile.dtype)


def _numbers(dtype: np.dtype[Any], op: str | None, size: int, rng: np.random.Generator) -> tuple[np.ndarray, int]:
    """PERIOD numbers whose reduction over ranks is exact, and over how many ranks it is."""
    if dtype.kind == "b":
        return rng.integers(0, 2, PERIOD).astype(bool), size
    if dtype.kind in "iu":
        numbers = np.frombuffer(rng.bytes(PERIOD * dtype.itemsize), dtype).copy()
        return (numbers | 1 if op == "prod" else numbers), size  # even factors would soon leave nothing but 0
    if op == "prod":
        units = [1, -1, 1j, -1j] if dtype.kind == "c" else [0.5, 1, 2, -0.5, -1, -2]
        return rng.choice(np.array(units), PERIOD).astype(dtype), size if dtype.kind == "c" else min(size, 6)
    real = dtype if dtype.kind != "c" else np.dtype(f"f{dtype.itemsize // 2}")
    finfo: Any = ml_dtypes.finfo
    exact = min(2 ** (int(finfo(real).nmant) + 1), 2**53)  # up to there all integers are
    adding = op in ("sum", "avg")
    most = max(1, exact // size) if adding else exact

    def integers() -> np.ndarray:
        return rng.integers(-most, most + 1, PERIOD).astype("float64")

    numbers = integers() + 1j * integers() if dtype.kind == "c" else integers()
    return numbers.astype(dtype), min(size, exact) if adding else size
