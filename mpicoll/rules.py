"""Rules of a tuning table: which algorithm was the fastest at which sizes, as measured."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from typing import NamedTuple


class Rule(NamedTuple):
    """The algorithm of calls of up to so many bytes; None: of all that are left."""

    upto: int | None
    algorithm: str


class Rules:
    """The rules of ranks in one layout. An object is equal to itself alone, so that it is quickly found in a cache.

    Attributes:
        source: where they are from, in words.
        ranges: for each collective that was measured, its rules: ascending, the last one without an end.
    """

    def __init__(self, source: str, ranges: Mapping[str, tuple[Rule, ...]]) -> None:
        self.source, self.ranges = source, ranges
        self._borders = {name: [rule.upto or 0 for rule in found[:-1]] for name, found in ranges.items()}

    def find(self, collective: str, nbytes: int) -> Rule | None:
        """The rule for a buffer of so many bytes; None if the collective was not measured."""
        found = self.ranges.get(collective)
        return found[bisect_left(self._borders[collective], nbytes)] if found else None

    def range_of(self, collective: str, nbytes: int) -> str:
        """The range of the rule for so many bytes, in words: "above 16 KiB, up to 1 MiB"."""
        place = bisect_left(self._borders[collective], nbytes)
        return in_words(self.ranges[collective])[place]


def in_words(rules: tuple[Rule, ...]) -> list[str]:
    """The range of each rule: "up to 16 KiB", "above 16 KiB, up to 1 MiB", "above 1 MiB"; a single one's "any size"."""
    borders = [rule.upto for rule in rules]
    words = []
    for start, stop in zip([None, *borders], borders, strict=False):
        above = [] if start is None else [f"above {binary(start)}"]
        upto = [] if stop is None else [f"up to {binary(stop)}"]
        words.append(", ".join(above + upto) or "any size")
    return words


def binary(nbytes: int) -> str:
    """A number of bytes in the largest unit that divides it: 64 KiB, 12 B."""
    unit = next((u for u in (30, 20, 10) if nbytes and nbytes % (1 << u) == 0), 0)
    return f"{nbytes >> unit:,} {({30: 'GiB', 20: 'MiB', 10: 'KiB'}).get(unit, 'B')}"
