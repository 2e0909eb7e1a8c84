"""The algorithms and nothing else: one module per algorithm, its functions named after the collectives they perform.

`FAMILIES["allreduce"]["ring"]` is `ring.allreduce`. The parameters of an algorithm follow from the collective:
`comm`, then the arrays, then `op` and `root` where there is one, then options. A parameter named `chunks` or
`result_chunks` takes the list of chunk views (chunk i belongs to rank i; to an all-to-all, chunk i goes to and result
chunk i comes from rank i), `sendbuf`, `result` and `buf` one flat array; `prepare` adapts. What only the root has is
None elsewhere. Those of the CHANNELLED collectives have one option more, `channels`: see there.
"""

import functools
import inspect
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from ..language import Algorithm, Comm
from . import (
    bruck,
    circulant,
    dissemination,
    double_tree,
    exchange,
    hierarchical,
    linear,
    pairwise,
    pat,
    recursive_doubling,
    recursive_halving,
    ring,
    scatter_allgather,
    swing,
    tree,
)
from .channels import side_by_side
from .cut import split
from .order import seen

COLLECTIVES = (
    "broadcast",
    "reduce",
    "allreduce",
    "reduce_scatter",
    "allgather",
    "alltoall",
    "gather",
    "scatter",
    "barrier",
)

CHANNELLED = ("broadcast", "reduce", "allreduce", "reduce_scatter", "allgather")


@functools.cache
def parameters(function: Callable[..., Algorithm]) -> tuple[str, ...]:
    """The names of an algorithm's parameters after comm."""
    return tuple(inspect.signature(function).parameters)[1:]


def _find(module: ModuleType, collective: str) -> Callable[..., Algorithm]:
    """The module's function; the flat ones, on one buffer, with an option `channels` more."""
    function: Callable[..., Algorithm] = getattr(module, collective)
    return function if collective not in CHANNELLED or module is hierarchical else with_channels(function)


def with_channels(function: Callable[..., Algorithm]) -> Callable[..., Algorithm]:
    """The algorithm with one more option: `channels`, as in `channels.side_by_side`."""
    names, signature = parameters(function), inspect.signature(function)

    @functools.wraps(function)
    def algorithm(comm: Comm, *arguments: Any, channels: int = 1, **options: Any) -> Algorithm:
        if channels == 1:
            return function(comm, *arguments, **options)
        return side_by_side(function, dict(zip(names, arguments, strict=False)), comm, channels, options)

    option = inspect.Parameter("channels", inspect.Parameter.KEYWORD_ONLY, default=1, annotation=int)
    shown = signature.replace(parameters=[*signature.parameters.values(), option])
    algorithm.__signature__ = shown  # type: ignore[attr-defined]
    return algorithm


def in_order(function: Callable[..., Algorithm], order: Sequence[int]) -> Callable[..., Algorithm]:
    """The algorithm with its ranks in this order, see `order`; its parameters stay the same."""
    names = parameters(function)

    @functools.wraps(function)
    def algorithm(comm: Comm, *arguments: Any, **options: Any) -> Algorithm:
        given = (seen(name, argument, order) for name, argument in zip(names, arguments, strict=False))
        return function(comm.group(order), *given, **options)

    return algorithm


FAMILIES: dict[str, dict[str, Callable[..., Algorithm]]] = {
    collective: {
        module.__name__.rpartition(".")[2]: _find(module, collective)
        for module in (
            recursive_doubling,
            tree,
            ring,
            recursive_halving,
            circulant,
            pairwise,
            linear,
            exchange,
            swing,
            dissemination,
            bruck,
            pat,
            scatter_allgather,
            double_tree,
            hierarchical,
        )
        if hasattr(module, collective)
    }
    for collective in COLLECTIVES
}

# Chunks of other ranks pass through a rank here, which knows only the lengths of its own: all have to be of one length.
SAME_LENGTH = {("alltoall", "bruck"), ("gather", "tree"), ("scatter", "tree")}


def prepare(
    function: Callable[..., Algorithm],
    arrays: Sequence[Any],
    counts: Sequence[int],
    result_counts: Sequence[int] | None = None,
) -> list[Any]:
    """The arrays as the algorithm `function` takes them: cut into chunks of `counts` elements where it wants chunks.

    result_counts, if given, cuts its result_chunks. An array that is None stays None.
    """
    lengths = {"chunks": counts, "result_chunks": counts if result_counts is None else result_counts}
    return [
        split(array, lengths[name]) if name in lengths and array is not None else array
        for array, name in zip(arrays, parameters(function), strict=False)
    ]
