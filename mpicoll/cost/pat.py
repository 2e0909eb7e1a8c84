"""The cost of `algorithms.pat`."""

from __future__ import annotations

from collections.abc import Sequence

from ..algorithms.pat import aggregation
from .model import Cost


def _messages(size: int, aggregate: int) -> Sequence[Sequence[int]]:
    """How far, in all, the chunks of each message of an all-gather have then come: what they share is their last steps.

    With q the power of two from size up: if it is no multiple of q/A, the remainder by q/A; else the last step.
    """
    apart = (1 << (size - 1).bit_length()) // aggregate
    found: dict[int, list[int]] = {}
    for s in range(1, size):
        found.setdefault(s % apart or -(s & -s), []).append(s)
    return list(found.values())


def allgather(rank: int, chunks: Sequence[int], itemsize: int, root: int, aggregate: int | None = None) -> Cost:
    """The chunk that has come s ranks far came from the rank that is the lowest bit of s away, and every rank sends as
    far as it receives."""
    size, cost = len(chunks), Cost()
    for message in _messages(size, aggregation(aggregate, size, max(chunks))):
        received = sum(chunks[rank - s] for s in message)
        sent = sum(chunks[rank - (s & (s - 1))] for s in message)
        cost += Cost(1, 1, sent, 0, 1, max(sent, received))
    return cost


def reduce_scatter(rank: int, chunks: Sequence[int], itemsize: int, root: int, aggregate: int | None = None) -> Cost:
    """The all-gather's messages the other way round, and all that arrives is reduced."""
    size, cost = len(chunks), Cost()
    for message in _messages(size, aggregation(aggregate, size, max(chunks))):
        sent = sum(chunks[rank - s] for s in message)
        received = sum(chunks[rank - (s & (s - 1))] for s in message)
        cost += Cost(1, 1, sent, received, 1, max(sent, received))
    return cost
