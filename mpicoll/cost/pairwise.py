"""The cost of `algorithms.pairwise`."""

from __future__ import annotations

from collections.abc import Sequence

from .model import Cost


def reduce_scatter(rank: int, chunks: Sequence[int], itemsize: int, root: int) -> Cost:
    """Every chunk but the own is sent to its owner, while another contribution to the own one arrives."""
    others, own = len(chunks) - 1, chunks[rank]
    port_bytes = sum(max(chunk, own) for chunk in chunks) - own
    return Cost(others, others, sum(chunks) - own, others * own, others, port_bytes)


def alltoall(rank: int, counts: Sequence[Sequence[int]], itemsize: int, root: int) -> Cost:
    """In step k what goes to rank + k is sent, while what comes from rank - k arrives."""
    size, row = len(counts), counts[rank]
    others, sent = size - 1, (sum(row) - row[rank]) * itemsize
    port_bytes = sum(max(row[(rank + k) % size], counts[rank - k][rank]) for k in range(1, size)) * itemsize
    return Cost(others, others, sent, 0, others, port_bytes)


def allgather(rank: int, chunks: Sequence[int], itemsize: int, root: int) -> Cost:
    """The own chunk is sent to every other rank, while another one arrives."""
    others, own = len(chunks) - 1, chunks[rank]
    port_bytes = sum(max(chunk, own) for chunk in chunks) - own
    return Cost(others, others, others * own, 0, others, port_bytes)


def allreduce(rank: int, chunks: Sequence[int], itemsize: int, root: int) -> Cost:
    return reduce_scatter(rank, chunks, itemsize, root) + allgather(rank, chunks, itemsize, root)
