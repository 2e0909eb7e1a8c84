"""What recursive halving and swing share: ranks in pairs exchange halves; and the fold to a power of two.

No algorithm by itself: `peer(rank, step, size)` says with whom one of `size` = 2^k ranks exchanges in a step. In step s
of a reduce-scatter the two of a pair hold partial results of the same 1/2^s of the buffer; each gives one half of that
away, and keeps and reduces the other. An all-gather is the same steps backwards. The ranks' parts lie in memory in an
order (`layout`) in which whatever is given or kept is one piece: a step is one message each way.

Other sizes fold: the first 2 (p - 2^k) ranks form pairs (2i, 2i+1), of which one acts for both. What the user cut for
each rank and what does not lie in that order is copied once.
"""

import functools
import itertools
from collections.abc import Callable, Sequence

from ..language import Algorithm, Array, Chunks, Comm, Op
from .cut import bounds, joined, runs

Peer = Callable[[int, int, int], int]
Exchange = tuple[int, slice, slice]  # with whom; what is kept, what is given away


def fold(rank: int, size: int, root: int | None = None) -> tuple[list[int], int]:
    """The ranks that act: of a pair the second one, or the root; and the other one of this rank's pair, or itself."""
    pairs = size - (1 << (size.bit_length() - 1))
    acting = [2 * i if 2 * i == root else 2 * i + 1 for i in range(pairs)]
    return acting + list(range(2 * pairs, size)), rank ^ 1 if rank < 2 * pairs else rank


@functools.cache
def layout(peer: Peer, size: int) -> tuple[int, ...]:
    """The ranks in the order in which their parts lie."""
    steps = size.bit_length() - 1

    def reached(rank: int, step: int) -> list[int]:
        """The ranks whose parts `rank` holds before this step: it keeps those that it reaches without it."""
        if step == steps:
            return [rank]
        return reached(rank, step + 1) + reached(peer(rank, step, size), step + 1)

    return tuple(reached(0, 0))


def exchanges(peer: Peer, rank: int, acting: Sequence[int], ends: Sequence[int]) -> tuple[slice, list[Exchange]]:
    """This rank's own part, and the steps of the reduce-scatter; parts end at `ends`, in the order of the layout."""
    vrank, size = acting.index(rank), len(acting)
    position = layout(peer, size).index(vrank)
    steps: list[Exchange] = []
    first, half = 0, size // 2
    while half:
        lower, upper = (slice(ends[a], ends[a + half]) for a in (first, first + half))
        other = acting[peer(vrank, len(steps), size)]
        if position < first + half:
            steps.append((other, lower, upper))
        else:
            steps.append((other, upper, lower))
            first += half
        half //= 2
    return slice(ends[position], ends[position + 1]), steps


def reduce_own(
    comm: Comm, partner: int, mine: Array, into: Array, out: Array, steps: list[Exchange], op: Op
) -> Algorithm:
    """out holds the own part reduced over all ranks; mine is only read (it may be into); the rest of into is used."""
    got = comm.scratch(mine)
    if partner != comm.rank:
        yield comm.Irecv(got, partner)
        yield op(into, got, mine) if partner < comm.rank else op(into, mine, got)
        mine = into
    for left, (other, keep, give) in zip(reversed(range(len(steps))), steps, strict=True):
        a, b = mine[keep], got[: len(mine[keep])]
        yield comm.Isend(mine[give], other), comm.Irecv(b, other)
        reduced = into[keep] if left else out
        yield op(reduced, b, a) if other < comm.rank else op(reduced, a, b)
        mine = into
    if comm.size == 1:
        yield comm.copy(out, mine)
    yield op.finish(out)


def allreduce(comm: Comm, sendbuf: Array, result: Array, op: Op, peer: Peer) -> Algorithm:
    """result holds the reduction over all ranks; sendbuf is only read (it may be result)."""
    acting, partner = fold(comm.rank, comm.size)
    if comm.rank not in acting:
        yield comm.Isend(sendbuf, partner)
        yield comm.Irecv(result, partner)
        return
    own, steps = exchanges(peer, comm.rank, acting, bounds(len(result), len(acting)))
    yield from reduce_own(comm, partner, sendbuf, result, result[own], steps, op)
    for other, keep, give in reversed(steps):
        yield comm.Isend(result[keep], other), comm.Irecv(result[give], other)
    if partner != comm.rank:
        yield comm.Isend(result, partner)


def arranged(lengths: Sequence[int], peer: Peer, acting: Sequence[int]) -> tuple[list[int], list[int]]:
    """The ranks' chunks, of these lengths, in the order in which they lie, and where the acting ranks' parts end."""
    pairs = len(lengths) - len(acting)
    parts = [(2 * v, 2 * v + 1) if v < pairs else (v + pairs,) for v in layout(peer, len(acting))]
    ends = itertools.accumulate((sum(lengths[i] for i in part) for part in parts), initial=0)
    return [i for part in parts for i in part], list(ends)


def reduce_scatter(comm: Comm, chunks: Chunks, result: Array, op: Op, peer: Peer) -> Algorithm:
    """result holds chunk[rank] reduced over all ranks; chunks is only read (result may be chunks[rank])."""
    acting, partner = fold(comm.rank, comm.size)
    order, ends = arranged([len(chunk) for chunk in chunks], peer, acting)
    mine, copies = joined(comm, runs(chunks, order))
    yield tuple(comm.copy(part, chunk) for part, chunk in copies)
    if comm.rank not in acting:
        yield comm.Isend(mine, partner)
        yield comm.Irecv(result, partner)
        return
    into = mine if copies else comm.scratch(mine)
    own, steps = exchanges(peer, comm.rank, acting, ends)
    out = result if partner == comm.rank else into[own]
    yield from reduce_own(comm, partner, mine, into, out, steps, op)
    if partner != comm.rank:
        theirs = len(chunks[partner])
        yield comm.Isend(out[:theirs], partner), comm.copy(result, out[theirs:])


def allgather(comm: Comm, sendbuf: Array, result_chunks: Chunks, peer: Peer) -> Algorithm:
    """result_chunks holds every rank's sendbuf (which may be result_chunks[rank])."""
    acting, partner = fold(comm.rank, comm.size)
    order, ends = arranged([len(chunk) for chunk in result_chunks], peer, acting)
    whole, copies = joined(comm, runs(result_chunks, order))
    if comm.rank not in acting:
        yield comm.Isend(sendbuf, partner)
        yield comm.Irecv(whole, partner)
    else:
        own, steps = exchanges(peer, comm.rank, acting, ends)
        theirs = 0 if partner == comm.rank else len(result_chunks[partner])
        arriving = None if partner == comm.rank else comm.Irecv(whole[own][:theirs], partner)
        yield arriving, comm.copy(whole[own][theirs:], sendbuf)
        for other, keep, give in reversed(steps):
            yield comm.Isend(whole[keep], other), comm.Irecv(whole[give], other)
        yield None if partner == comm.rank else comm.Isend(whole, partner)
    yield tuple(comm.copy(chunk, part) for part, chunk in copies)
