"""The algorithms and nothing else: one module per algorithm, its functions named after the collectives they perform.

`FAMILIES["allreduce"]["ring"]` is `ring.allreduce`. The parameters of an algorithm follow from the collective:
`comm`, then the arrays, then `op` and `root` where there is one, then options. A parameter named `chunks` or
`result_chunks` takes the list of chunk views (chunk i belongs to rank i; to an all-to-all, chunk i goes to and result
chunk i comes from rank i), `sendbuf`, `result` and `buf` one flat array; `prepare` adapts. What only the root has is
None elsewhere.
"""

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from ..language import Algorithm
from . import exchange, linear, pairwise, recursive_doubling, ring, tree
from .cut import split

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

FAMILIES: dict[str, dict[str, Callable[..., Algorithm]]] = {
    collective: {
        module.__name__.rpartition(".")[2]: getattr(module, collective)
        for module in (recursive_doubling, tree, ring, pairwise, linear, exchange)
        if hasattr(module, collective)
    }
    for collective in COLLECTIVES
}


@functools.cache
def _parameters(function: Callable[..., Algorithm]) -> tuple[str, ...]:
    return tuple(inspect.signature(function).parameters)[1:]


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
        for array, name in zip(arrays, _parameters(function), strict=False)
    ]
