"""A Reducer whose options differ between ranks is an error on all of them; one that is rebuilt has rank 0's order."""

import itertools

import numpy as np
import pytest

from mpicoll import Reducer
from mpicoll.training.buckets import MIB
from mpicoll.training.exchanges import Nothing
from mpicoll.training.layers import Parameter
from mpicoll.training.parameter_server import ParameterServer

pytestmark = pytest.mark.mpi(min_size=2)


def parameters(lengths=(3, 1, 4)):
    return [Parameter(f"p{i}", np.zeros(length)) for i, length in enumerate(lengths)]


@pytest.mark.parametrize(
    ("ours", "theirs", "says"),
    [
        ({}, {"bucket_cap_mb": 7}, "bucket_cap_mb is 25.0 on rank 0 and 7.0 on rank {}"),
        ({}, {"bucket_cap_mb": -1}, "bucket_cap_mb is 25.0 on rank 0 and -1.0 on rank {}"),
        ({"first_bucket_mb": 0.5}, {}, "first_bucket_mb is 0.5 on rank 0 and 1.0 on rank {}"),
        ({}, {"last_bucket_mb": 2}, "last_bucket_mb is 1.0 on rank 0 and 2.0 on rank {}"),
        ({}, {"overlap": False}, "overlap is True on rank 0 and False on rank {}"),
        ({"find_unused_parameters": True}, {}, "find_unused_parameters is True on rank 0 and False on rank {}"),
        ({}, {"check_finite": True}, "check_finite is False on rank 0 and True on rank {}"),
        ({}, {"rebuild_buckets": True}, "rebuild_buckets is False on rank 0 and True on rank {}"),
        ({}, {"reproducible": True}, "reproducible is False on rank 0 and True on rank {}"),
        ({"algorithm": "ring"}, {}, "algorithm is 'ring' on rank 0 and None on rank {}"),
        ({"exchange": Nothing()}, {"exchange": ParameterServer()}, "is 'nothing' on rank 0 and 'push' on rank {}"),
    ],
)
def test_options_of_another_rank_are_an_error_on_all(comm, ours, theirs, says):
    odd = comm.size - 1
    with pytest.raises(ValueError, match=rf"rank\(s\) {odd} differ from rank 0; .*{says.format(odd)}"):
        Reducer(comm, parameters(), **(theirs if comm.rank == odd else ours))


def test_options_come_before_parameters_and_parameters_keep_their_numbers(comm):
    odd = comm.rank == comm.size - 1
    with pytest.raises(ValueError, match=r"reducers' options differ .* bucket_cap_mb is 25\.0 on rank 0 and 1\.0"):
        Reducer(comm, parameters((3, 2) if odd else (3, 1)), 1 if odd else 25)
    with pytest.raises(
        ValueError, match=r"models differ .* parameter 1 is p1 float64\[1\] on rank 0 and p1 float64\[2"
    ):
        Reducer(comm, parameters((3, 2) if odd else (3, 1)))


def test_the_same_size_as_integer_and_as_float_is_alike(comm):
    Reducer(comm, parameters(), bucket_cap_mb=1.0 if comm.rank else 1)


def test_rebuilt_buckets_follow_rank_0_whatever_the_others_do(comm):
    ps = parameters((1, 2, 3, 4))
    cap = 8 / MIB  # every parameter has a bucket
    reducer = Reducer(comm, ps, cap, cap, cap, rebuild_buckets=True)
    order = list(itertools.permutations(range(4)))[5 * comm.rank + 8]
    for i in order:
        ps[i].grad += comm.rank + i
        reducer.mark_ready(ps[i])
    reducer.finish()
    mean = (comm.size - 1) / 2
    assert all((p.grad == mean + i).all() for i, p in enumerate(ps))
    of_rank_0 = list(itertools.permutations(range(4)))[8]
    assert [p.name for bucket in reducer.buckets for p, _ in bucket.views] == [f"p{i}" for i in of_rank_0]


def test_where_nothing_is_exchanged_every_rank_keeps_its_own(comm):
    ps = parameters()
    reducer = Reducer(comm, ps, exchange=Nothing())
    before = comm.bytes_sent
    for step in range(2):
        reducer.zero_grad()
        for p in reversed(ps):
            p.grad += 10 * comm.rank + step
            reducer.mark_ready(p)
        reducer.finish()
        assert all((p.grad == 10 * comm.rank + step).all() for p in ps)
    assert comm.bytes_sent == before
    assert reducer.bytes_sent == reducer.formula_bytes() == 0
    assert reducer.communication_s == 0
