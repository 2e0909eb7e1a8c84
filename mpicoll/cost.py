"""Closed forms: what each algorithm costs a rank, in rounds, messages, bytes sent and bytes reduced.

Integer arithmetic on (rank, size, counts), exact for every rank, also where the cut is uneven; the tests hold it
against what the world counts. Where p divides n the sums over the cut are the terms known from the literature: a ring's
reduce-scatter or all-gather sends (p-1)/p n in p-1 steps and reduces (p-1)/p n, an all-reduce both, so 2(p-1)/p n
(Patarasuk & Yuan 2009); recursive doubling sends and reduces lg p times n, and a rank of a pair up to 2 n and n more; a
binomial tree is left after ceil(lg p) transfers of n (Thakur, Rabenseifner & Gropp 2005).
"""

from fractions import Fraction
from typing import NamedTuple

from .algorithms.ring import SEGMENT_BYTES


class Cost(NamedTuple):
    """What one rank does: rounds (yields with a message of its own), messages and bytes sent, bytes reduced."""

    rounds: int
    messages: int
    sent: int
    reduced: int

    def __add__(self, other):
        return Cost(*(a + b for a, b in zip(self, other, strict=True)))


def of(collective, algorithm, rank, counts, itemsize, root=0, **options):
    """The Cost of a rank of len(counts) ranks, with counts[r] elements of itemsize bytes in rank r's chunk.

    Collectives that do not cut their buffer move sum(counts) elements; a barrier none.
    """
    chunks = [0 if collective == "barrier" else count * itemsize for count in counts]
    return _FORMS[collective][algorithm](rank, chunks, root, **options)


def busbw_factor(collective, size):
    """busbw / algbw as nccl-tests defines it: the share of the buffer that crosses a rank's link at best."""
    if collective == "allreduce":
        return Fraction(2 * (size - 1), size)
    if collective in ("reduce_scatter", "allgather", "alltoall", "gather", "scatter"):
        return Fraction(size - 1, size)
    return Fraction(1)


def _ring_reduce_scatter(rank, chunks, root, segments=None):
    """Every chunk but the own is sent on, every chunk but the left neighbour's is reduced, in segments."""
    size = len(chunks)
    segments = segments or max(2, -(-max(chunks) // SEGMENT_BYTES))
    rounds = (size - 1) * segments
    return Cost(rounds, rounds, sum(chunks) - chunks[rank], sum(chunks) - chunks[rank - 1])


def _ring_allgather(rank, chunks, root):
    """Every chunk is sent on but the right neighbour's, which arrives last."""
    size = len(chunks)
    return Cost(size - 1, size - 1, sum(chunks) - chunks[(rank + 1) % size], 0)


def _ring_allreduce(rank, chunks, root, segments=None):
    return _ring_reduce_scatter(rank, chunks, root, segments) + _ring_allgather(rank, chunks, root)


def _tree_children(vrank, size):
    """How many children a rank of the binomial tree has: one at each power of two below its lowest bit."""
    reach = vrank & -vrank or size
    return (min(reach, size - vrank) - 1).bit_length()


def _tree_broadcast(rank, chunks, root):
    """One round to receive the whole buffer, except on the root, and one for each child to send it."""
    vrank = (rank - root) % len(chunks)
    children = _tree_children(vrank, len(chunks))
    return Cost((vrank > 0) + children, children, children * sum(chunks), 0)


def _tree_reduce(rank, chunks, root):
    """The broadcast's edges backwards: what each child sends is reduced, and the sum is sent to the parent."""
    vrank = (rank - root) % len(chunks)
    children, sends = _tree_children(vrank, len(chunks)), int(vrank > 0)
    return Cost(sends + children, sends, sends * sum(chunks), children * sum(chunks))


def _tree_allreduce(rank, chunks, root):
    return _tree_reduce(rank, chunks, 0) + _tree_broadcast(rank, chunks, 0)


def _recursive_doubling(rank, chunks, root):
    """lg q exchanges of everything, q the largest power of two; a pair's even rank only hands over and gets back."""
    size, n = len(chunks), sum(chunks)
    doublings = size.bit_length() - 1
    paired = rank < 2 * (size - (1 << doublings))
    if paired and rank % 2 == 0:
        return Cost(2, 1, n, 0)
    exchanges = Cost(doublings, doublings, doublings * n, doublings * n)
    return exchanges + Cost(2, 1, n, n) if paired else exchanges


_FORMS = {
    "broadcast": {"tree": _tree_broadcast},
    "reduce": {"tree": _tree_reduce},
    "allreduce": {"ring": _ring_allreduce, "tree": _tree_allreduce, "recursive_doubling": _recursive_doubling},
    "reduce_scatter": {"ring": _ring_reduce_scatter},
    "allgather": {"ring": _ring_allgather},
    "barrier": {"recursive_doubling": _recursive_doubling},
}
