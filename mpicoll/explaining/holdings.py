"""What every rank holds before each step, told from the messages alone: what arrived, and what is made of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from ..algorithms.cut import bounds
from ..world.symbols import Expression
from ..world.trace import Passed

Key: TypeAlias = tuple[int, Expression]  # an element and what it is made of
Holding: TypeAlias = list[list[list[Any]]]  # of each rank, for each row, what it holds
EVERYWHERE = ("reduce", "allreduce", "reduce_scatter", "alltoall")  # all ranks have a whole buffer


class Contradiction(Exception):
    """A rank sends, or ends with, what it does not have."""


class Holdings:
    """From which step on every rank has which values.

    Args:
        own: the values that each rank has from the start.
        moves: a value that has been sent is gone.
    """

    def __init__(self, own: Sequence[Sequence[Key]], moves: bool) -> None:
        self._since = [dict.fromkeys(keys, 0) for keys in own]
        self._until: list[dict[Key, int]] = [{} for _ in own]
        self._moves = moves

    def pass_on(self, step: int, source: int, dest: int, key: Key) -> None:
        """A value is sent in this step."""
        if self.since(source, key) > step or self._until[source].get(key, step) < step:
            raise Contradiction(f"step {step}: rank {source} sends {key}, which it does not have")
        self._since[dest].setdefault(key, step + 1)
        if self._moves:
            self._until[source][key] = step

    def since(self, rank: int, key: Key) -> int:
        """The step from which on the rank has a value: it got it, or it made it of what it got."""
        known = self._since[rank]
        if key not in known:
            index, made_of = key
            if isinstance(made_of, int):
                raise Contradiction(f"rank {rank} never gets {key}")
            known[key] = max(self.since(rank, (index, part)) for part in made_of)
        return known[key]

    def held(self, rank: int, step: int) -> list[Key]:
        """What the rank has just before this step, in the order of the elements, the earlier first."""
        until = self._until[rank]
        there = [(key, since) for key, since in self._since[rank].items() if since <= step <= until.get(key, step)]
        return [key for key, _ in sorted(there, key=lambda pair: (pair[0][0], pair[1]))]


def tell(
    collective: str,
    size: int,
    count: int,
    root: int,
    steps: Sequence[Sequence[Passed]],
    results: Sequence[Sequence[Key]],
) -> list[Holding]:
    """What the ranks hold before each of the steps and after the last one.

    A row is an element, and what a rank holds of it is the value that most ranks contributed to. In an all-to-all a row
    is a rank, and what is held are its elements; a value that was sent is gone.

    Raises:
        Contradiction: the messages and results do not fit together.
    """
    moves = collective == "alltoall"
    holdings = Holdings(_own(collective, size, count, root), moves)
    for number, step in enumerate(steps):
        for message in step:
            for value in message.values:
                holdings.pass_on(number, message.source, message.dest, (value.index, value.expression))
    for rank, result in enumerate(results):
        for key in result:
            holdings.since(rank, key)
    rows = _by_rank if moves else _most_complete
    return [[rows(holdings.held(rank, s), size, count) for rank in range(size)] for s in range(len(steps) + 1)]


def hear(size: int, steps: Sequence[Sequence[Passed]]) -> list[Holding]:
    """Of a barrier: who is known to have entered, in one row."""
    known: list[frozenset[int]] = [frozenset([rank]) for rank in range(size)]
    states = [known]
    for step in steps:
        before, known = known, list(known)
        for message in step:
            known[message.dest] |= before[message.source]
        states.append(known)
    return [[[[(0, tuple(sorted(ranks)))]] for ranks in state] for state in states]


def contributors(made_of: Expression) -> frozenset[int]:
    """The ranks in an expression."""
    if isinstance(made_of, int):
        return frozenset([made_of])
    return frozenset().union(*map(contributors, made_of))


def _own(collective: str, size: int, count: int, root: int) -> list[list[Key]]:
    """What the ranks have from the start."""
    starts = bounds(count, size)
    return [
        [
            (index, rank)
            for index in range(count)
            if collective in EVERYWHERE
            or (rank == root if collective in ("broadcast", "scatter") else starts[rank] <= index < starts[rank + 1])
        ]
        for rank in range(size)
    ]


def _by_rank(held: Sequence[Key], size: int, count: int) -> list[list[Key]]:
    return [[key for key in held if key[1] == rank] for rank in range(size)]


def _most_complete(held: Sequence[Key], size: int, count: int) -> list[list[Key]]:
    """Of as complete ones the first that it had."""
    rows: list[list[Key]] = [[] for _ in range(count)]
    for key in held:
        row = rows[key[0]]
        if not row or len(contributors(key[1])) > len(contributors(row[0][1])):
            rows[key[0]] = [key]
    return rows
