"""Closed forms: what each algorithm costs a rank, and how long it takes on links of a given alpha, beta and gamma.

Integer arithmetic on (rank, size, counts), exact for every rank, also where the cut is uneven; the tests hold it
against what the world counts. Where p divides n the sums over the cut are the terms known from the literature: a ring's
reduce-scatter or all-gather sends (p-1)/p n in p-1 steps and reduces (p-1)/p n, an all-reduce both, so 2(p-1)/p n
(Patarasuk & Yuan 2009); recursive doubling sends and reduces lg p times n, and a rank of a pair up to 2 n and n more; a
binomial tree is left after ceil(lg p) transfers of n (Thakur, Rabenseifner & Gropp 2005). `predict` gives the times
that such formulas state; the tests hold it against them, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from .algorithms.cut import rows
from .algorithms.ring import segment_count


class Cost(NamedTuple):
    """What one rank does.

    Attributes:
        rounds: yields with a message of its own.
        messages, sent: messages and bytes sent.
        reduced: bytes reduced.
        port_messages, port_bytes: messages and bytes in the busier direction of its port, sent or received, summed over
            rounds; a rank has one port, and each of its directions carries one message at a time.
    """

    rounds: int = 0
    messages: int = 0
    sent: int = 0
    reduced: int = 0
    port_messages: int = 0
    port_bytes: int = 0

    def __add__(self, other: Cost) -> Cost:  # type: ignore[override]  # a sum, not tuple's concatenation
        return Cost(*(a + b for a, b in zip(self, other, strict=True)))


def of(
    collective: str,
    algorithm: str,
    rank: int,
    counts: Sequence[Any],
    itemsize: int,
    root: int = 0,
    **options: Any,
) -> Cost:
    """The Cost of a rank of len(counts) ranks, with counts[r] elements of itemsize bytes in rank r's chunk.

    Collectives that do not cut their buffer move sum(counts) elements; a barrier none. In an all-to-all every rank
    sends counts[r] elements to rank r; or counts[s][d] are those from rank s to rank d.
    """
    return _FORMS[collective][algorithm](rank, _in_bytes(collective, counts, itemsize), itemsize, root, **options)


def time(cost: Cost, alpha: float, beta: float, gamma: float) -> float:
    """The seconds for which a rank's port and its reductions are busy, one after the other.

    Args:
        alpha, beta: seconds for a message and for a byte through the port, which is full duplex.
        gamma: seconds for a byte reduced; all are counted, also those that an algorithm hides behind its messages.
    """
    return cost.port_messages * alpha + cost.port_bytes * beta + cost.reduced * gamma


def predict(
    collective: str,
    algorithm: str,
    counts: Sequence[Any],
    itemsize: int,
    alpha: float,
    beta: float,
    gamma: float,
    root: int = 0,
    **options: Any,
) -> float:
    """The seconds that the collective takes in the alpha-beta-gamma model; arguments as in `of` and `time`.

    That is the longest `time` of any rank or, down a chain of ranks, where one waits for the other, the time of that
    path. Apart from reductions that are hidden it is a lower bound: other waiting is left out, and so is contention,
    as if no two ranks shared a link. Of more than 64 ranks only a few are looked at; if the chunks are cut evenly, the
    busiest is among them.
    """
    if path := _PATHS.get((collective, algorithm)):
        costs = [path(_in_bytes(collective, counts, itemsize), itemsize, **options)]
    else:
        size = len(counts)
        few = 0, 1, size - 2, size - 1, (root - 1) % size, root, (root + 1) % size, counts.index(max(counts))
        ranks = range(size) if size <= 64 else set(few)
        costs = [of(collective, algorithm, rank, counts, itemsize, root, **options) for rank in ranks]
    return max(time(cost, alpha, beta, gamma) for cost in costs)


def busbw_factor(collective: str, size: int) -> Fraction:
    """busbw / algbw as nccl-tests defines it: the share of the buffer that crosses a rank's link at best."""
    if collective == "allreduce":
        return Fraction(2 * (size - 1), size)
    if collective in ("reduce_scatter", "allgather", "alltoall", "gather", "scatter"):
        return Fraction(size - 1, size)
    return Fraction(1)


def _in_bytes(collective: str, counts: Sequence[Any], itemsize: int) -> Sequence[Any]:
    if collective == "barrier":
        return [0] * len(counts)
    if collective == "alltoall":  # a table; its form converts what it needs
        return rows(counts)
    return [count * itemsize for count in counts]


# The forms, by module. The chunks are in bytes, but for the all-to-all.


def _one_by_one(n: int, sends: int = 0, receives: int = 0, reduces: int = 0) -> Cost:
    """So many rounds, each with one message of n bytes out or in or both, and so many of those received are reduced."""
    rounds = max(sends, receives)
    return Cost(rounds, sends, sends * n, reduces * n, rounds, rounds * n)


def _recursive_doubling(rank: int, chunks: Sequence[int], itemsize: int, root: int) -> Cost:
    """lg q exchanges of everything, q the largest power of two; a pair's even rank only hands over and gets back."""
    size, n = len(chunks), sum(chunks)
    doublings = size.bit_length() - 1
    paired = rank < 2 * (size - (1 << doublings))
    hands_over, gets_back = _one_by_one(n, sends=1), _one_by_one(n, receives=1)
    if paired and rank % 2 == 0:
        return hands_over + gets_back
    exchanges = _one_by_one(n, doublings, doublings, doublings)
    return exchanges + hands_over + gets_back + Cost(reduced=n) if paired else exchanges


def _tree_children(vrank: int, size: int) -> int:
    """How many children a rank of the binomial tree has: one at each power of two below its lowest bit."""
    reach = vrank & -vrank or size
    return (min(reach, size - vrank) - 1).bit_length()


def _tree_broadcast(rank: int, chunks: Sequence[int], itemsize: int, root: int) -> Cost:
    """One round to receive the whole buffer, except on the root, and one for each child to send it."""
    vrank, n = (rank - root) % len(chunks), sum(chunks)
    children = _tree_children(vrank, len(chunks))
    return _one_by_one(n, receives=int(vrank > 0)) + _one_by_one(n, sends=children)


def _tree_reduce(rank: int, chunks: Sequence[int], itemsize: int, root: int) -> Cost:
    """The broadcast's edges backwards: what each child sends is reduced, and the sum is sent to the parent."""
    vrank, n = (rank - root) % len(chunks), sum(chunks)
    children = _tree_children(vrank, len(chunks))
    return _one_by_one(n, receives=children, reduces=children) + _one_by_one(n, sends=int(vrank > 0))


def _tree_allreduce(rank: int, chunks: Sequence[int], itemsize: int, root: int) -> Cost:
    return _tree_reduce(rank, chunks, itemsize, 0) + _tree_broadcast(rank, chunks, itemsize, 0)


def _ring_steps(chunks: Sequence[int], last: int) -> int:
    """The bytes that pass the port in p-1 steps, the first of which sends chunk `last` and receives the one before."""
    return sum(max(chunks[last - step], chunks[last - step - 1]) for step in range(len(chunks) - 1))


def _ring_reduce_scatter(
    rank: int, chunks: Sequence[int], itemsize: int, root: int, segments: int | None = None
) -> Cost:
    """Every chunk but the own is sent on, every chunk but the left neighbour's is reduced, in segments."""
    rounds = (len(chunks) - 1) * segment_count(segments, max(chunks), least=2)
    n = sum(chunks)
    return Cost(rounds, rounds, n - chunks[rank], n - chunks[rank - 1], rounds, _ring_steps(chunks, rank - 1))


def _ring_allgather(rank: int, chunks: Sequence[int], itemsize: int, root: int) -> Cost:
    """Every chunk is sent on but the right neighbour's, which arrives last."""
    size = len(chunks)
    sent = sum(chunks) - chunks[(rank + 1) % size]
    return Cost(size - 1, size - 1, sent, 0, size - 1, _ring_steps(chunks, rank))


def _ring_allreduce(rank: int, chunks: Sequence[int], itemsize: int, root: int, segments: int | None = None) -> Cost:
    first = _ring_reduce_scatter(rank, chunks, itemsize, root, segments)
    return first + _ring_allgather(rank, chunks, itemsize, root)


def _pipeline(n: int, itemsize: int, segments: int | None) -> tuple[int, int]:
    """The number of segments of n bytes, and the bytes of the longest."""
    segments = segment_count(segments, n)
    return segments, -(-n // (segments * itemsize)) * itemsize


def _ring_chain(n: int, itemsize: int, segments: int | None, receives: bool, sends: bool, reduces: bool) -> Cost:
    """All segments come in or go out in a round each; if both, the first comes in alone, one round before."""
    segments, longest = _pipeline(n, itemsize, segments)
    cost = Cost(segments, sends * segments, sends * n, reduces * n, segments, n)
    return cost + Cost(rounds=1, port_messages=1, port_bytes=longest) if receives and sends else cost


def _ring_broadcast(rank: int, chunks: Sequence[int], itemsize: int, root: int, segments: int | None = None) -> Cost:
    """All but the root receive the buffer, all but the root's left neighbour send it."""
    size, vrank = len(chunks), (rank - root) % len(chunks)
    if size == 1:
        return Cost()
    return _ring_chain(sum(chunks), itemsize, segments, vrank > 0, vrank < size - 1, False)


def _ring_reduce(rank: int, chunks: Sequence[int], itemsize: int, root: int, segments: int | None = None) -> Cost:
    """All but the root's left neighbour receive and reduce the buffer, all but the root send it."""
    size, vrank = len(chunks), (rank - root) % len(chunks)
    if size == 1:
        return Cost()
    return _ring_chain(sum(chunks), itemsize, segments, vrank < size - 1, vrank > 0, vrank < size - 1)


def _ring_broadcast_path(chunks: Sequence[int], itemsize: int, segments: int | None = None) -> Cost:
    """The first segment passes p-2 links before the last rank begins to receive: p-2+S rounds."""
    if len(chunks) == 1:
        return Cost()
    n, links = sum(chunks), len(chunks) - 2
    segments, longest = _pipeline(n, itemsize, segments)
    return Cost(port_messages=links + segments, port_bytes=links * longest + n)


def _ring_reduce_path(chunks: Sequence[int], itemsize: int, segments: int | None = None) -> Cost:
    """The broadcast's rounds, and every segment that arrives is reduced before it goes on."""
    path = _ring_broadcast_path(chunks, itemsize, segments)
    return path + Cost(reduced=path.port_bytes)


def _pairwise_reduce_scatter(rank: int, chunks: Sequence[int], itemsize: int, root: int) -> Cost:
    """Every chunk but the own is sent to its owner, while another contribution to the own one arrives."""
    others, own = len(chunks) - 1, chunks[rank]
    port_bytes = sum(max(chunk, own) for chunk in chunks) - own
    return Cost(others, others, sum(chunks) - own, others * own, others, port_bytes)


def _pairwise_alltoall(rank: int, counts: Sequence[Sequence[int]], itemsize: int, root: int) -> Cost:
    """In step k what goes to rank + k is sent, while what comes from rank - k arrives."""
    size, row = len(counts), counts[rank]
    others, sent = size - 1, (sum(row) - row[rank]) * itemsize
    port_bytes = sum(max(row[(rank + k) % size], counts[rank - k][rank]) for k in range(1, size)) * itemsize
    return Cost(others, others, sent, 0, others, port_bytes)


def _all_at_once(messages: int, nbytes: int) -> Cost:
    """One round with so many messages out, nbytes in all."""
    return Cost(int(messages > 0), messages, nbytes, 0, messages, nbytes)


def _linear_broadcast(rank: int, chunks: Sequence[int], itemsize: int, root: int) -> Cost:
    n, others = sum(chunks), len(chunks) - 1
    return _all_at_once(others, others * n) if rank == root else _one_by_one(n, receives=1)


def _linear_reduce(rank: int, chunks: Sequence[int], itemsize: int, root: int) -> Cost:
    """The root receives in one round after the other, since it reduces in order."""
    n, others = sum(chunks), len(chunks) - 1
    return _one_by_one(n, receives=others, reduces=others) if rank == root else _one_by_one(n, sends=1)


def _linear_allreduce(rank: int, chunks: Sequence[int], itemsize: int, root: int) -> Cost:
    return _linear_reduce(rank, chunks, itemsize, 0) + _linear_broadcast(rank, chunks, itemsize, 0)


def _linear_scatter(rank: int, chunks: Sequence[int], itemsize: int, root: int) -> Cost:
    own = chunks[rank]
    return _all_at_once(len(chunks) - 1, sum(chunks) - own) if rank == root else _one_by_one(own, receives=1)


def _linear_gather(rank: int, chunks: Sequence[int], itemsize: int, root: int) -> Cost:
    """The scatter's messages the other way round."""
    if rank == root:
        return _linear_scatter(rank, chunks, itemsize, root)._replace(messages=0, sent=0)
    return _one_by_one(chunks[rank], sends=1)


def _exchange_allreduce(rank: int, chunks: Sequence[int], itemsize: int, root: int) -> Cost:
    n, others = sum(chunks), len(chunks) - 1
    return _all_at_once(others, others * n) + Cost(reduced=others * n)


_FORMS: dict[str, dict[str, Callable[..., Cost]]] = {
    "broadcast": {"tree": _tree_broadcast, "ring": _ring_broadcast, "linear": _linear_broadcast},
    "reduce": {"tree": _tree_reduce, "ring": _ring_reduce, "linear": _linear_reduce},
    "allreduce": {
        "recursive_doubling": _recursive_doubling,
        "tree": _tree_allreduce,
        "ring": _ring_allreduce,
        "linear": _linear_allreduce,
        "exchange": _exchange_allreduce,
    },
    "reduce_scatter": {"ring": _ring_reduce_scatter, "pairwise": _pairwise_reduce_scatter},
    "allgather": {"ring": _ring_allgather},
    "alltoall": {"pairwise": _pairwise_alltoall},
    "gather": {"linear": _linear_gather},
    "scatter": {"linear": _linear_scatter},
    "barrier": {"recursive_doubling": _recursive_doubling},
}

_PATHS: dict[tuple[str, str], Callable[..., Cost]] = {
    ("broadcast", "ring"): _ring_broadcast_path,
    ("reduce", "ring"): _ring_reduce_path,
}
