"""Options that no call of a Communicator passes, on real communicators, in every form: channels, nodes, parts."""

import numpy as np
import pytest
from forms import FORMS
from test_language import perform

from mpicoll.algorithms import FAMILIES, prepare
from mpicoll.algorithms.cut import even

pytestmark = pytest.mark.mpi


def options(size):
    yield "ring", {"channels": 2}
    yield "ring", {"channels": 8}
    yield "double_tree", {"segments": 4}
    yield "double_tree", {"segments": 3, "channels": 2}
    yield "hierarchical", {"nodes": [rank % 2 for rank in range(size)]}
    yield "hierarchical", {"nodes": [min(rank, 1) for rank in range(size)], "parts": 3}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("collective", ["allreduce", "reduce_scatter", "allgather", "broadcast"])
def test_the_result_is_what_it_is_without_options(comm, form, collective):
    size, rank = comm.size, comm.rank
    for algorithm, given in options(size):
        function = FAMILIES[collective].get(algorithm)
        for count in (0, 1, 500 * size + 3) if function else ():
            lengths = even(count, size)
            own = slice(sum(lengths[:rank]), sum(lengths[: rank + 1]))
            base = np.arange(count) * 7
            total = base * size + sum(range(size))
            arrays, rest, want = {
                "allreduce": ([base + rank, np.empty_like(base)], ["op"], total),
                "reduce_scatter": ([base + rank, np.empty_like(base[own])], ["op"], total[own]),
                "allgather": ([base[own].copy(), np.empty_like(base)], [], base),
                "broadcast": ([base + rank], [size - 1], base + size - 1),
            }[collective]
            prepared = prepare(function, arrays, lengths)

            def program(c, op, function=function, prepared=prepared, rest=rest, given=given):
                return function(c, *prepared, *(op if argument == "op" else argument for argument in rest), **given)

            perform(comm, form, program, arrays[0], arrays[-1])
            assert (arrays[-1] == want).all(), (algorithm, given, count)
