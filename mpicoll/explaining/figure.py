"""What the lecture's figures show, taken from a run in the world: who sends what to whom, and what everybody holds.

A piece is a part of the buffer whose elements all go the same way: a chunk, a segment, or the whole buffer. What a rank
holds of a piece is the most complete value that it has; in an all-to-all it is what it has and has not sent on. In a
barrier nothing is sent; what a rank holds there is the knowledge of who has entered.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

from ..cost import Cost
from ..world import prove
from ..world.trace import Passed, Recorded
from .holdings import Key, contributors, hear, tell

CUTS = ("segments", "channels", "parts")  # options that cut a chunk further
SHOWN = 16  # up to so many ranks it is told what they hold


class Part(NamedTuple):
    """A piece, and the ranks whose contributions are in it."""

    piece: int
    ranks: frozenset[int]


class Arrow(NamedTuple):
    """A message from rank to rank, on a lane."""

    source: int
    dest: int
    number: int
    parts: list[Part]


State: TypeAlias = list[list[list[Part]]]  # of each rank and row


class Figure(NamedTuple):
    """A collective, step by step.

    Attributes:
        pieces: how many there are.
        steps: the arrows of each step; in a step a rank sends one message at most, and receives one.
        held: what the ranks hold before each step and after the last one: a list of Parts for each piece or, in an
            all-to-all, for each rank whose data they are.
        results: of each rank, the pieces of its result and what they are made of.
        hidden: how many messages are no arrows, since they are empty.
        costs: of each rank, for a buffer of `nbytes` bytes.
    """

    collective: str
    algorithm: str
    size: int
    root: int
    options: dict[str, Any]
    pieces: int
    steps: list[list[Arrow]]
    held: list[State]
    results: list[list[Key]]
    hidden: int
    costs: list[Cost]
    nbytes: int


def draw(collective: str, algorithm: str, size: int, root: int = 0, **options: Any) -> Figure:
    """The Figure of a run on `size` ranks; the run is a proof.

    Raises:
        Fault: the algorithm is wrong.
        ValueError: it cannot do this.
    """
    count = size * math.prod(options.get(name) or 1 for name in CUTS)
    world = Recorded(size)
    proof = prove(collective, algorithm, size, count, root=root, world=world, **options)
    messages = world.passed()
    shown = [message for message in messages if message.values or collective == "barrier"]
    steps = [list(step) for _, step in itertools.groupby(shown, key=lambda message: message.step)]
    results: list[list[Key]] = [
        [] if result is None else [(value.index, value.expression) for value in result.tolist()]
        for result in proof.results
    ]
    barrier = collective == "barrier"
    held = []
    if size <= SHOWN:
        held = hear(size, steps) if barrier else tell(collective, size, count, root, steps, results)
    firsts = [0] if barrier else _firsts(collective, count, steps, results)
    number = {index: piece for piece, index in enumerate(firsts)}

    def parts(keys: Sequence[Key]) -> list[Part]:
        return [Part(number[index], contributors(made_of)) for index, made_of in keys if index in number]

    def arrow(message: Passed) -> Arrow:
        keys = [(value.index, value.expression) for value in message.values]
        return Arrow(message.source, message.dest, message.number, parts(keys))

    rows = range(size) if collective == "alltoall" else firsts
    return Figure(
        collective,
        algorithm,
        size,
        root,
        options,
        len(firsts),
        [[arrow(message) for message in step] for step in steps],
        [[[parts(rank[row]) for row in rows] for rank in state] for state in held],
        [[(number[index], made_of) for index, made_of in result if index in number] for result in results],
        len(messages) - len(shown),
        [Cost(**vars(counts)) for counts in proof.counts],
        8 * count,
    )


def _firsts(
    collective: str, count: int, steps: Sequence[Sequence[Passed]], results: Sequence[Sequence[Key]]
) -> list[int]:
    """The first element of each piece: the one before it goes another way."""
    if collective == "alltoall":
        return list(range(count))
    ways: list[list[object]] = [[] for _ in range(count)]
    for number, step in enumerate(steps):
        for message in step:
            for value in message.values:
                ways[value.index].append((number, message[1:4], value.expression))
    for rank, result in enumerate(results):
        for index, made_of in result:
            ways[index].append((rank, made_of))
    return [index for index in range(count) if index == 0 or ways[index] != ways[index - 1]]
