"""The cost of `algorithms.exchange`."""

from __future__ import annotations

from collections.abc import Sequence

from .model import Cost, all_at_once


def allreduce(rank: int, chunks: Sequence[int], itemsize: int, root: int) -> Cost:
    n, others = sum(chunks), len(chunks) - 1
    return all_at_once(others, others * n) + Cost(reduced=others * n)
