"""The cost of `algorithms.dissemination`."""

from __future__ import annotations

from collections.abc import Sequence

from .model import Cost, one_by_one


def barrier(rank: int, chunks: Sequence[int], itemsize: int, root: int) -> Cost:
    rounds = (len(chunks) - 1).bit_length()
    return one_by_one(0, sends=rounds, receives=rounds)
