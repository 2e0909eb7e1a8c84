"""Proofs: a collective run on symbolic data in the world, and its results checked element by element."""

from typing import NamedTuple

from ..algorithms import FAMILIES, cut, prepare
from .faults import Divergence, LeftEarly, MissingContribution, NotFinished, UnsetData, WrongElement
from .symbols import Symbols
from .world import World


class Proof(NamedTuple):
    """What a proven collective did and holds: `counts[rank]`, and `results[rank]`, an array of Values or None."""

    counts: list
    results: list


def prove(collective, algorithm, size, count=None, counts=None, root=0, in_place=False, seed=None, **options):
    """The algorithm does what the collective promises on `size` ranks, or a Fault is raised that says what is wrong.

    Args:
        collective, algorithm: names in `algorithms.FAMILIES`.
        count: elements of the whole buffer, cut as evenly as possible where the collective or the algorithm cuts;
            or counts: the elements of every rank's chunk.
        in_place: the result is the sendbuf (reduce_scatter: its own chunk; allgather: the reverse).
        seed: as in `World`.
        options: the algorithm's own, such as `segments`.
    """
    if counts is None:
        counts = cut.even(count or 0, size)
    function = FAMILIES[collective][algorithm]
    symbols = Symbols(size)
    arguments, results = _BUFFERS[collective](symbols, counts, root, in_place)

    def program(comm, op):
        arrays = prepare(function, arguments[comm.rank], counts)
        return function(comm, *arrays, *_rest(collective, op, root), **options)

    world = World(size, symbols, seed=seed)
    ran = world.run(program)
    if collective == "barrier":
        for rank, others in enumerate(world.unheard()):
            if others:
                raise LeftEarly(f"barrier: rank {rank} can leave before ranks {others} have entered")
    _check_results(symbols, collective, counts, root, results)
    return Proof(ran, results)


def _rest(collective, op, root):
    """The arguments that follow the arrays."""
    return {"broadcast": (root,), "reduce": (op, root), "allgather": ()}.get(collective, (op,))


# The buffers of each collective: what every rank passes, and where every rank's result will be. A sendbuf that is not
# the result is read-only, so that a write to it is found where it happens.


def _broadcast_buffers(symbols, counts, root, in_place):
    n = sum(counts)
    bufs = [symbols.leaves(root, 0, n) if rank == root else symbols.unset(n) for rank in range(len(counts))]
    return [[buf] for buf in bufs], bufs


def _reduce_buffers(symbols, counts, root, in_place):
    arguments, results = _allreduce_buffers(symbols, counts, root, in_place)
    for rank in range(len(counts)):
        if rank != root:
            arguments[rank][0].flags.writeable = False  # also in place: only the root has a result
            arguments[rank][1] = results[rank] = None
    return arguments, results


def _allreduce_buffers(symbols, counts, root, in_place):
    n = sum(counts)
    sendbufs = [symbols.leaves(rank, 0, n) for rank in range(len(counts))]
    results = sendbufs if in_place else [symbols.unset(n) for _ in counts]
    return _pairs(sendbufs, results, in_place), list(results)


def _reduce_scatter_buffers(symbols, counts, root, in_place):
    sendbufs = [symbols.leaves(rank, 0, sum(counts)) for rank in range(len(counts))]
    if in_place:
        results = [cut.split(sendbuf, counts)[rank] for rank, sendbuf in enumerate(sendbufs)]
    else:
        results = [symbols.unset(count) for count in counts]
    return _pairs(sendbufs, results, in_place), results


def _allgather_buffers(symbols, counts, root, in_place):
    results = [symbols.unset(sum(counts)) for _ in counts]
    sendbufs, start = [], 0
    for rank, count in enumerate(counts):
        leaves = symbols.leaves(rank, start, start + count)
        if in_place:
            own = cut.split(results[rank], counts)[rank]
            own[:] = leaves
        sendbufs.append(own if in_place else leaves)
        start += count
    return _pairs(sendbufs, results, in_place), results


def _barrier_buffers(symbols, counts, root, in_place):
    tokens = [symbols.unset(0) for _ in counts]
    return [[token] for token in tokens], tokens


def _pairs(sendbufs, results, in_place):
    if not in_place:
        for sendbuf in sendbufs:
            sendbuf.flags.writeable = False
    return [list(pair) for pair in zip(sendbufs, results, strict=True)]


_BUFFERS = {
    "broadcast": _broadcast_buffers,
    "reduce": _reduce_buffers,
    "allreduce": _allreduce_buffers,
    "reduce_scatter": _reduce_scatter_buffers,
    "allgather": _allgather_buffers,
    "barrier": _barrier_buffers,
}


def _check_results(symbols, collective, counts, root, results):
    """Every element of every result is what the collective promises, and the same object wherever it is held."""
    owners = [rank for rank, count in enumerate(counts) for _ in range(count)]
    held = {}
    for rank, result in enumerate(results):
        if result is None:
            continue
        start = sum(counts[:rank]) if collective == "reduce_scatter" else 0
        for index, value in enumerate(result.tolist(), start):
            where = f"{collective}: result of rank {rank}, element {index}"
            if value is None:
                raise UnsetData(f"{where} is unset")
            if value.index != index:
                raise WrongElement(f"{where} is {value}")
            if collective in ("broadcast", "allgather"):
                source = root if collective == "broadcast" else owners[index]
                if value is not symbols.leaf(source, index):
                    raise WrongElement(f"{where} is {value} instead of rank {source}'s")
            elif missing := symbols.missing(value):
                raise MissingContribution(f"{where} is {value}: without ranks {missing}")
            elif not value.finished:
                raise NotFinished(f"{where} is {value}")
            first, same = held.setdefault(index, (rank, value))
            if value is not same:
                raise Divergence(f"{where} is {value}, on rank {first} it is {same}")
