"""What the matrix does not cover: barriers, shapes, bits, long messages."""

import numpy as np
import pytest
from forms import FORMS, perform
from ml_dtypes import bfloat16

from mpicoll.algorithms import FAMILIES
from mpicoll.arrays import OPS, undefined

pytestmark = pytest.mark.mpi


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("algorithm", [None, *FAMILIES["barrier"]])
def test_barrier_holds_everybody_until_all_are_there(comm, algorithm, form):
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    late = comm.size - 1
    token = np.zeros(1, "uint8")
    for _ in range(5):  # the late rank first tells the others that it is there; nobody may be through before that
        if comm.rank == late:
            for rank in range(comm.size - 1):
                world.Send(token, rank, tag=7)
        perform(comm, form, "barrier", algorithm=algorithm)
        if comm.rank != late:
            assert world.Iprobe(late, tag=7), f"rank {comm.rank} is through before rank {late} has come"
            world.Recv(token, late, tag=7)


def test_results_have_the_shape_of_what_was_passed(comm):
    x = np.ones((2, 3), "float32")
    assert comm.allreduce(x).shape == (2, 3)
    assert comm.allreduce(np.ones(())).shape == ()
    assert comm.allgather(x).shape == (2 * comm.size, 3)
    assert comm.allgather(np.ones(())).shape == (comm.size,)
    assert comm.reduce_scatter(np.ones((2 * comm.size, 3))).shape == (2, 3)
    assert comm.allreduce(x, np.empty(6, "float32")).shape == (6,)


@pytest.mark.parametrize("in_place", [False, pytest.param(True, marks=pytest.mark.ranks(range(4)))])
@pytest.mark.parametrize("algorithm", [None, *FAMILIES["allreduce"]])
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128", "float16", bfloat16])
def test_random_floats_nan_and_signed_zeros_end_with_the_same_bits_everywhere(comm, dtype, algorithm, in_place):
    dtype = np.dtype(dtype)
    generator = np.random.default_rng(comm.rank)
    counts = [100, 10_000]
    if comm.size <= 3 and dtype == np.float32:
        counts += [200_000]  # below, within and above the sizes that are reduced by another way
    for count in counts:
        for op in OPS:
            if undefined(op, dtype):
                continue
            x = random_numbers(generator, count, dtype, comm.rank)
            bits = comm.allreduce(x, x if in_place else None, op=op, algorithm=algorithm).view("uint8")
            first = bits if comm.rank == 0 else np.empty_like(bits)
            assert (comm.broadcast(first) == bits).all(), (count, op)
            if not in_place and count == 100:
                for form in FORMS:
                    again = perform(comm, form, "allreduce", x, op=op, algorithm=algorithm)
                    assert (again.view("uint8") == bits).all(), (count, op, form)


def random_numbers(generator, count, dtype, rank):
    """Numbers of all sizes, zeros of both signs, infinities, and NaNs whose bits tell from which rank they are."""
    with np.errstate(all="ignore"):
        x = (generator.standard_normal(2 * count) * 10.0 ** generator.integers(-6, 6, 2 * count)).astype(dtype)
    x = x[:count].copy()
    if dtype.kind == "c":
        x.imag = generator.standard_normal(count)
    for value in (0.0, -0.0, np.inf, -np.inf):
        x[generator.integers(0, count, count // 10)] = value
    nan = np.full(1, np.nan, dtype)
    nan.view("uint8")[0] |= rank + 1
    x[generator.integers(0, count, count // 10)] = nan[0]
    x[:1] = nan
    return x


@pytest.mark.parametrize("algorithm", FAMILIES["allreduce"])
def test_large_messages_in_many_segments_are_right(comm, algorithm):
    count = 400_001 * comm.size + 3
    data = np.arange(count, dtype="float32") % 1000
    result = comm.allreduce(data + comm.rank, algorithm=algorithm)
    assert (result == data * comm.size + sum(range(comm.size))).all()


def test_messages_longer_than_the_limit_are_cut(comm, monkeypatch):
    monkeypatch.setattr("mpicoll.progress.call.MESSAGE_LIMIT", 40)
    for algorithm in FAMILIES["allreduce"]:
        for form in FORMS:
            x = np.arange(1000, dtype="float64") + comm.rank
            result = perform(comm, form, "allreduce", x, algorithm=algorithm)
            assert (result == np.arange(1000) * comm.size + sum(range(comm.size))).all()
