"""Symbolic data: every element knows its index in the whole buffer and the expression it is made of.

A `Value` stands for one element: rank 2's contribution to element 5, or `a op b` of two values, in that order. Values
are made once: the same expression of the same element is the same object, on whatever rank it was computed. So "all
ranks hold the same bits" is `is`. Unset memory holds None.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from .faults import DoubledContribution, FinishedReduced, FinishedTwice, MissingContribution, UnsetData, WrongElement
from .memory import Memory

Expression: TypeAlias = "int | tuple[Expression, Expression]"  # a rank's contribution, or one op another


class Value:
    """One element: its index, the set of ranks that contributed (one bit each), and whether it has been finished."""

    __slots__ = ("expression", "finished", "index", "ranks")

    def __init__(self, index: int, ranks: int, expression: Expression, finished: bool = False) -> None:
        self.index, self.ranks, self.expression, self.finished = index, ranks, expression, finished

    def __str__(self) -> str:
        return f"element {self.index} = {_text(self.expression)}{', finished' if self.finished else ''}"


class Symbols:
    """The values of one world of `size` ranks, and the operations on arrays of them."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._leaves: dict[tuple[int, int], Value] = {}
        self._sums: dict[tuple[Value, Value], Value] = {}
        self._finished: dict[Value, Value] = {}

    def leaf(self, rank: int, index: int) -> Value:
        """The contribution of a rank to the element with this index of the whole buffer."""
        if (rank, index) not in self._leaves:
            self._leaves[rank, index] = Value(index, 1 << rank, rank)
        return self._leaves[rank, index]

    def leaves(self, rank: int, start: int, stop: int) -> Memory:
        """An array of a rank's contributions to elements start to stop - 1."""
        array = self.unset(stop - start)
        array[:] = [self.leaf(rank, index) for index in range(start, stop)]
        return array

    def unset(self, count: int) -> Memory:
        """An array in which nothing has been written yet."""
        return np.full(count, None)

    def scratch(self, like: Memory, count: int) -> Memory:
        return self.unset(count)

    def poison(self, array: Memory) -> None:
        array.fill(None)

    def read(self, array: Memory) -> list[Value]:
        """The values of an array that is to be sent or copied: all of them are set."""
        values: list[Any] = array.tolist()
        if None in values:
            raise UnsetData(f"{values.count(None)} of {len(values)} elements are unset")
        return values

    def copy(self, out: Memory, array: Memory) -> None:
        out[:] = self.read(array)

    def reduce(self, out: Memory, a: Memory, b: Memory) -> None:
        out[:] = [self._sums.get(pair) or self._combine(*pair) for pair in zip(a.tolist(), b.tolist(), strict=True)]

    def finish(self, out: Memory) -> None:
        out[:] = [self._finished.get(a) or self._finish(a) for a in out.tolist()]

    def missing(self, value: Value) -> list[int]:
        """The ranks that did not contribute."""
        return [rank for rank in range(self.size) if not value.ranks >> rank & 1]

    def _combine(self, a: Value | None, b: Value | None) -> Value:
        if a is None or b is None:
            raise UnsetData(f"{a or b or 'unset data'} is combined with unset data")
        if a.finished or b.finished:
            raise FinishedReduced(f"{a} is combined with {b}")
        if a.index != b.index:
            raise WrongElement(f"{a} is combined with {b}")
        if a.ranks & b.ranks:
            raise DoubledContribution(f"{a} is combined with {b}: rank {_lowest(a.ranks & b.ranks)} is in both")
        value = self._sums[a, b] = Value(a.index, a.ranks | b.ranks, (a.expression, b.expression))
        return value

    def _finish(self, a: Value | None) -> Value:
        if a is None:
            raise UnsetData("unset data is finished")
        if a.finished:
            raise FinishedTwice(str(a))
        if missing := self.missing(a):
            raise MissingContribution(f"{a} is finished without ranks {missing}")
        value = self._finished[a] = Value(a.index, a.ranks, a.expression, True)
        return value


def _lowest(ranks: int) -> int:
    return (ranks & -ranks).bit_length() - 1


def _text(expression: Expression) -> str:
    """ "x0 op (x1 op x2)": who was combined with whom, in the order of the operands."""
    if isinstance(expression, int):
        return f"x{expression}"
    return " op ".join(_text(e) if isinstance(e, int) else f"({_text(e)})" for e in expression)
