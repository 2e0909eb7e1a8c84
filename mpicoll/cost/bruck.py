"""The cost of `algorithms.bruck`."""

from __future__ import annotations

from collections.abc import Sequence

from .model import Cost


def allgather(rank: int, chunks: Sequence[int], itemsize: int, root: int) -> Cost:
    """Round k sends the 2^k chunks from the own one on, while the next 2^k arrive; fewer in the last."""
    size, have, cost = len(chunks), 1, Cost()
    around = [*chunks[rank:], *chunks[:rank]]
    while have < size:
        more = min(have, size - have)
        sent, received = sum(around[:more]), sum(around[have : have + more])
        cost += Cost(1, 1, sent, 0, 1, max(sent, received))
        have += more
    return cost


def alltoall(rank: int, counts: Sequence[Sequence[int]], itemsize: int, root: int) -> Cost:
    """A chunk that goes i ranks far is sent once for each bit of i; all count as long as the rank's longest.

    The algorithm takes only chunks of one length.
    """
    size, longest = len(counts), max(counts[rank]) * itemsize
    rounds, moved = (size - 1).bit_length(), sum(i.bit_count() for i in range(size)) * longest
    return Cost(rounds, rounds, moved, 0, rounds, moved)
