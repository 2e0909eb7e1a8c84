"""Proofs: a collective run on symbolic data in the world, and its results checked element by element."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

from ..algorithms import FAMILIES, cut, in_order, prepare
from ..language import Algorithm, Comm, Op, Program
from .faults import Divergence, LeftEarly, MissingContribution, NotFinished, UnsetData, WrongElement
from .memory import Memory
from .symbols import Symbols, Value
from .world import Counts, World

Buffers: TypeAlias = tuple[list[list[Any]], list[Any]]  # every rank's arguments, and where its result will be


class Proof(NamedTuple):
    """What a proven collective did and holds: `counts[rank]`, and `results[rank]`, an array of Values or None."""

    counts: list[Counts]
    results: list[Any]


def prove(
    collective: str,
    algorithm: str,
    size: int,
    count: int | None = None,
    counts: Sequence[Any] | None = None,
    root: int = 0,
    in_place: bool = False,
    seed: int | None = None,
    world: World | None = None,
    order: Sequence[int] | None = None,
    **options: Any,
) -> Proof:
    """The algorithm does what the collective promises on `size` ranks, or a Fault is raised that says what is wrong.

    Args:
        collective, algorithm: names in `algorithms.FAMILIES`.
        count: elements of the whole buffer, cut as evenly as possible where the collective or the algorithm cuts;
            or counts: the elements of every rank's chunk; of an all-to-all also counts[s][d], from rank s to rank d.
        in_place: the result is the sendbuf (reduce_scatter, scatter on the root: its own chunk; allgather, gather on
            the root: the reverse); an all-to-all is never in place.
        seed: as in `World`.
        world: of `size` ranks and of symbols, new; by default one that keeps no record.
        order: in which the algorithm counts the ranks, see `algorithms.order`; None: as they are.
        options: the algorithm's own, such as `segments`.
    """
    if counts is None:
        counts = cut.even(count or 0, size)
    if collective == "alltoall":
        counts = cut.rows(counts)
    world = world or World(size, seed=seed)
    symbols = world.values
    assert isinstance(symbols, Symbols)
    arguments, results = _BUFFERS[collective](symbols, counts, root, in_place)
    ran = world.run(bind(collective, algorithm, arguments, counts, root, options, order))
    if collective == "barrier":
        for rank, others in enumerate(world.unheard()):
            if others:
                raise LeftEarly(f"barrier: rank {rank} can leave before ranks {others} have entered")
    _check_results(symbols, collective, counts, root, results)
    return Proof(ran, results)


def bind(
    collective: str,
    algorithm: str,
    arguments: Sequence[list[Any]],
    counts: Sequence[Any],
    root: int,
    options: dict[str, Any],
    order: Sequence[int] | None = None,
) -> Program:
    """The algorithm as a program: rank r of the comm passes the arrays arguments[r]; the others as in `prove`."""
    function = FAMILIES[collective][algorithm]
    if order is not None:
        function = in_order(function, order)

    def program(comm: Comm, op: Op) -> Algorithm:
        arrays = prepare(function, arguments[comm.rank], *_lengths(collective, counts, comm.rank))
        return function(comm, *arrays, *_rest(collective, op, root), **options)

    return program


def _lengths(collective: str, counts: Sequence[Any], rank: int) -> tuple[Sequence[int], ...]:
    """How a rank's chunks are cut; in an all-to-all those it sends and those it receives."""
    return (counts[rank], _column(counts, rank)) if collective == "alltoall" else (counts,)


def _rest(collective: str, op: Op, root: int) -> tuple[Op | int, ...]:
    """The arguments that follow the arrays."""
    rooted: dict[str, tuple[Op | int, ...]] = {
        "broadcast": (root,),
        "gather": (root,),
        "scatter": (root,),
        "reduce": (op, root),
    }
    return rooted.get(collective, () if collective in ("allgather", "alltoall") else (op,))


def _column(rows: Sequence[Sequence[int]], rank: int) -> list[int]:
    return [row[rank] for row in rows]


# The buffers of each collective: what every rank passes, and where every rank's result will be. What is only to be read
# is read-only, so that a write to it is found where it happens.


def _broadcast_buffers(symbols: Symbols, counts: Sequence[int], root: int, in_place: bool) -> Buffers:
    n = sum(counts)
    bufs = [symbols.leaves(root, 0, n) if rank == root else symbols.unset(n) for rank in range(len(counts))]
    bufs[root].flags.writeable = False
    return [[buf] for buf in bufs], bufs


def _reduce_buffers(symbols: Symbols, counts: Sequence[int], root: int, in_place: bool) -> Buffers:
    arguments, results = _allreduce_buffers(symbols, counts, root, in_place)
    for rank in range(len(counts)):
        if rank != root:
            arguments[rank][0].flags.writeable = False  # also in place: only the root has a result
            arguments[rank][1] = results[rank] = None
    return arguments, results


def _allreduce_buffers(symbols: Symbols, counts: Sequence[int], root: int, in_place: bool) -> Buffers:
    n = sum(counts)
    sendbufs = [symbols.leaves(rank, 0, n) for rank in range(len(counts))]
    results = list(sendbufs) if in_place else [symbols.unset(n) for _ in counts]
    return _pairs(sendbufs, results), results


def _reduce_scatter_buffers(symbols: Symbols, counts: Sequence[int], root: int, in_place: bool) -> Buffers:
    sendbufs = [symbols.leaves(rank, 0, sum(counts)) for rank in range(len(counts))]
    if in_place:
        results = [cut.split(sendbuf, counts)[rank] for rank, sendbuf in enumerate(sendbufs)]
    else:
        results = [symbols.unset(count) for count in counts]
    return _pairs(sendbufs, results), results


def _allgather_buffers(
    symbols: Symbols, counts: Sequence[int], root: int, in_place: bool, everywhere: bool = True
) -> Buffers:
    results: list[Any] = []
    sendbufs: list[Any] = []
    start = 0
    for rank, count in enumerate(counts):
        sendbuf = symbols.leaves(rank, start, start + count)
        result = symbols.unset(sum(counts)) if everywhere or rank == root else None
        if in_place and result is not None:
            own: Any = cut.split(result, counts)[rank]
            own[:] = sendbuf
            sendbuf = own
        results.append(result)
        sendbufs.append(sendbuf)
        start += count
    return _pairs(sendbufs, results), results


def _gather_buffers(symbols: Symbols, counts: Sequence[int], root: int, in_place: bool) -> Buffers:
    return _allgather_buffers(symbols, counts, root, in_place, everywhere=False)


def _scatter_buffers(symbols: Symbols, counts: Sequence[int], root: int, in_place: bool) -> Buffers:
    sendbuf = symbols.leaves(root, 0, sum(counts))
    results: list[Any] = [symbols.unset(count) for count in counts]
    if in_place:
        results[root] = cut.split(sendbuf, counts)[root]
    return _pairs([sendbuf if rank == root else None for rank in range(len(counts))], results), results


def _alltoall_buffers(symbols: Symbols, counts: Sequence[Sequence[int]], root: int, in_place: bool) -> Buffers:
    sendbufs = [symbols.leaves(rank, 0, sum(row)) for rank, row in enumerate(counts)]
    results = [symbols.unset(sum(_column(counts, rank))) for rank in range(len(counts))]
    return _pairs(sendbufs, results), results


def _barrier_buffers(symbols: Symbols, counts: Sequence[int], root: int, in_place: bool) -> Buffers:
    tokens = [symbols.unset(0) for _ in counts]
    return [[token] for token in tokens], tokens


def _pairs(sendbufs: Sequence[Any], results: Sequence[Any]) -> list[list[Any]]:
    """Every rank's two arguments; a sendbuf that is not the result itself is read-only from here on."""
    for sendbuf, result in zip(sendbufs, results, strict=True):
        if sendbuf is not None and sendbuf is not result:
            sendbuf.flags.writeable = False
    return [list(pair) for pair in zip(sendbufs, results, strict=True)]


_BUFFERS: dict[str, Callable[..., Buffers]] = {
    "broadcast": _broadcast_buffers,
    "reduce": _reduce_buffers,
    "allreduce": _allreduce_buffers,
    "reduce_scatter": _reduce_scatter_buffers,
    "allgather": _allgather_buffers,
    "alltoall": _alltoall_buffers,
    "gather": _gather_buffers,
    "scatter": _scatter_buffers,
    "barrier": _barrier_buffers,
}


def _promise(collective: str, counts: Sequence[Any], root: int, rank: int) -> list[tuple[int | None, int]]:
    """What a rank's result is to hold, element by element: (source, index), of no source if all ranks contribute."""
    if collective == "alltoall":
        starts = [(source, sum(row[:rank])) for source, row in enumerate(counts)]
        return [(source, start + i) for source, start in starts for i in range(counts[source][rank])]
    everything, start = range(sum(counts)), sum(counts[:rank])
    if collective in ("allgather", "gather"):
        owners = [owner for owner, count in enumerate(counts) for _ in range(count)]
        return list(zip(owners, everything, strict=True))
    source = root if collective in ("broadcast", "scatter") else None
    own = collective in ("scatter", "reduce_scatter")
    return [(source, index) for index in (everything[start : start + counts[rank]] if own else everything)]


def _check_results(
    symbols: Symbols, collective: str, counts: Sequence[Any], root: int, results: Sequence[Memory | None]
) -> None:
    """Every element of every result is what the collective promises, and the same object wherever it is held."""
    held: dict[int, tuple[int, Value]] = {}  # by index, on the first rank
    for rank, result in enumerate(results):
        if result is None or collective == "barrier":
            continue
        promise = _promise(collective, counts, root, rank)
        for position, (value, (source, index)) in enumerate(zip(result.tolist(), promise, strict=True)):
            where = f"{collective}: result of rank {rank}, element {position}"
            if value is None:
                raise UnsetData(f"{where} is unset")
            if value.index != index:
                raise WrongElement(f"{where} is {value} instead of element {index}")
            if source is not None:
                if value is not symbols.leaf(source, index):
                    raise WrongElement(f"{where} is {value} instead of rank {source}'s")
                continue
            if missing := symbols.missing(value):
                raise MissingContribution(f"{where} is {value}: without ranks {missing}")
            if not value.finished:
                raise NotFinished(f"{where} is {value}")
            first, same = held.setdefault(index, (rank, value))
            if value is not same:
                raise Divergence(f"{where} is {value}, on rank {first} it is {same}")
