"""The cost of `algorithms.tree`."""

from __future__ import annotations

from collections.abc import Sequence

from ..algorithms.tree import subtree
from .model import Cost, one_by_one


def child_count(vrank: int, size: int) -> int:
    """How many children a rank of the binomial tree has: one at each power of two below its lowest bit."""
    reach = vrank & -vrank or size
    return (min(reach, size - vrank) - 1).bit_length()


def broadcast(rank: int, chunks: Sequence[int], itemsize: int, root: int) -> Cost:
    """One round to receive the whole buffer, except on the root, and one for each child to send it."""
    vrank, n = (rank - root) % len(chunks), sum(chunks)
    children = child_count(vrank, len(chunks))
    return one_by_one(n, receives=int(vrank > 0)) + one_by_one(n, sends=children)


def reduce(rank: int, chunks: Sequence[int], itemsize: int, root: int) -> Cost:
    """The broadcast's edges backwards: what each child sends is reduced, and the sum is sent to the parent."""
    vrank, n = (rank - root) % len(chunks), sum(chunks)
    children = child_count(vrank, len(chunks))
    return one_by_one(n, receives=children, reduces=children) + one_by_one(n, sends=int(vrank > 0))


def allreduce(rank: int, chunks: Sequence[int], itemsize: int, root: int) -> Cost:
    return reduce(rank, chunks, itemsize, 0) + broadcast(rank, chunks, itemsize, 0)


def scatter(rank: int, chunks: Sequence[int], itemsize: int, root: int) -> Cost:
    """The chunks of the rank and of those below arrive in a round, except on the root; one more for each child.

    All chunks count as long as the longest: the algorithm takes only chunks of one length.
    """
    size, vrank, longest = len(chunks), (rank - root) % len(chunks), max(chunks)
    below, sends = len(subtree(vrank, size)), child_count(vrank, size)
    passed = (below - 1) * longest
    return one_by_one(below * longest, receives=int(vrank > 0)) + Cost(sends, sends, passed, 0, sends, passed)


def gather(rank: int, chunks: Sequence[int], itemsize: int, root: int) -> Cost:
    """The scatter's messages the other way round; those of all children in one round."""
    sends = int(rank != root)
    scattered = scatter(rank, chunks, itemsize, root)
    rounds = sends + (scattered.messages > 0)
    return scattered._replace(rounds=rounds, messages=sends, sent=sends * (scattered.port_bytes - scattered.sent))
