"""The algorithms and nothing else: one module per algorithm, its functions named after the collectives they perform.

`FAMILIES["allreduce"]["ring"]` is `ring.allreduce`. The parameters of an algorithm follow from the collective:
`comm`, then the arrays, then `op` and `root` where there is one, then options. A parameter named `chunks` or
`result_chunks` takes the list of chunk views (chunk i belongs to rank i), `sendbuf`, `result` and `buf` one flat array;
`prepare` adapts.
"""

import functools
import inspect

from . import recursive_doubling, ring, tree
from .cut import split

COLLECTIVES = ("broadcast", "reduce", "allreduce", "reduce_scatter", "allgather", "barrier")

FAMILIES = {
    collective: {
        module.__name__.rpartition(".")[2]: getattr(module, collective)
        for module in (ring, tree, recursive_doubling)
        if hasattr(module, collective)
    }
    for collective in COLLECTIVES
}


@functools.cache
def _wants_chunks(function):
    return tuple(name.endswith("chunks") for name in inspect.signature(function).parameters)[1:]


def prepare(function, arrays, counts):
    """The arrays as the algorithm `function` takes them: cut into chunks of `counts` elements where it wants chunks."""
    wants = _wants_chunks(function)
    if True not in wants:
        return arrays
    return [split(array, counts) if cut else array for array, cut in zip(arrays, wants, strict=False)]
