"""Differences between the ranks' models are found and named, on every rank."""

import numpy as np
import pytest
from fake_comm import one_rank, ranks

from mpicoll.training.layers import Parameter
from mpicoll.training.reducer import Reducer
from mpicoll.training.replicas import first_difference


def parameters(lengths=(3, 3, 3, 3, 3, 3), dtype=np.float64):
    return [Parameter(f"p{i}", np.full(n, float(i), dtype)) for i, n in enumerate(lengths)]


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (lambda: parameters((3, 4, 3)), r"parameter 1 is p1 float64\[3\] on rank 0 and p1 float64\[4\] on rank 1"),
        (lambda: parameters((3, 3)), r"parameter 2 is p2 float64\[3\] on rank 0 and no parameter on rank 1"),
        (list, r"parameter 0 is p0 float64\[3\] on rank 0 and no parameter on rank 1"),
        (lambda: parameters((3, 3, 3), np.float32), r"parameter 0 is .* and p0 float32\[3\] on rank 1"),
    ],
)
def test_different_models_are_named_on_every_rank(other, message):
    def program(comm):
        with pytest.raises(ValueError, match=r"rank\(s\) 1, 2 differ from rank 0; " + message):
            Reducer(comm, other() if comm.rank else parameters((3, 3, 3)))

    ranks(3, program)


def test_first_difference_names_the_parameter_and_the_ranks():
    def program(comm):
        ps = parameters()
        assert first_difference(comm, ps) is None
        ps[4].data[0] = -0.0
        assert first_difference(comm, ps) is None
        if comm.rank == 2:
            ps[4].data[0] = 0.0  # equal in value, different in bits
            ps[5].data[2] += 1
        return first_difference(comm, ps), ps[4]

    for (parameter, where), expected in ranks(3, program):
        assert parameter is expected
        assert where == [2]


def test_first_difference_of_no_parameters_is_none():
    assert first_difference(one_rank(), []) is None
