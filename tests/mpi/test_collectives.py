"""Every collective, algorithm and form against NumPy, with data whose result is exact in any order."""

import numpy as np
import pytest

from mpicoll.algorithms import FAMILIES

pytestmark = pytest.mark.mpi

DTYPES = ["float32", "float64", "int8", "int32", "int64", "uint8", "uint16"]
FORMS = ["blocking", "nonblocking", "persistent"]


def counts_for(size):
    return sorted({0, 1, size - 1, size, size + 1, 13, 97, 1009})


def perform(comm, form, name, *buffers, **arguments):
    """The collective's result in the given form; a plan is played three times, on unchanged input unless in place."""
    if form == "blocking":
        return getattr(comm, name)(*buffers, **arguments)
    if form == "nonblocking":
        return getattr(comm, "i" + name)(*buffers, **arguments).wait()
    plan = getattr(comm, name + "_init")(*buffers, **arguments)
    originals = [buffer.copy() for buffer in buffers if buffer is not None]
    for _ in range(3):
        for buffer, original in zip((b for b in buffers if b is not None), originals, strict=True):
            buffer[...] = original
        plan.start()
        result = plan.wait()
    plan.free()
    return result


def inputs(size, count, dtype, op="sum"):
    """One array for each rank: small integers, whose sum divides by size where it is to be averaged."""
    values = (np.arange(count)[None, :] * 3 + 5 * np.arange(size)[:, None]) % 11
    if op == "avg":
        values[-1] = values.sum(0) * (size - 1) + values[-1]  # the sum of the rows is now size times what it was
    return values.astype(dtype)


def reduced(data, op):
    if op == "max":
        return data.max(0)
    total = data.sum(0, dtype=data.dtype)
    return total / data.dtype.type(len(data)) if op == "avg" else total


def ops(dtype):
    return ["sum", "max", "avg"] if np.dtype(dtype).kind == "f" else ["sum", "max"]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("algorithm", [None, *FAMILIES["allreduce"]])
def test_allreduce_gives_every_rank_every_contribution(comm, algorithm, form):
    for dtype in DTYPES:
        for op in ops(dtype):
            for count in counts_for(comm.size):
                data = inputs(comm.size, count, dtype, op)
                sendbuf = data[comm.rank].copy()
                result = perform(comm, form, "allreduce", sendbuf, op=op, algorithm=algorithm)
                assert result.dtype == dtype
                assert (result == reduced(data, op)).all(), (dtype, op, count)
                assert (sendbuf == data[comm.rank]).all(), "sendbuf was written to"
                result = perform(comm, form, "allreduce", sendbuf, sendbuf, op=op, algorithm=algorithm)
                assert result is sendbuf
                assert (sendbuf == reduced(data, op)).all(), ("in place", dtype, op, count)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("algorithm", [None, *FAMILIES["reduce"]])
def test_reduce_gives_the_root_every_contribution(comm, algorithm, form):
    for root in range(comm.size):
        for dtype, op in [("float32", "avg"), ("float64", "max"), ("int32", "sum")]:
            for count in counts_for(comm.size):
                data = inputs(comm.size, count, dtype, op)
                for in_place in (False, True):
                    sendbuf = data[comm.rank].copy()
                    recvbuf = sendbuf if in_place else None
                    result = perform(comm, form, "reduce", sendbuf, recvbuf, op=op, root=root, algorithm=algorithm)
                    if comm.rank == root:
                        assert (result == reduced(data, op)).all(), (root, dtype, op, count)
                    else:
                        assert result is None
                    if comm.rank != root or not in_place:
                        assert (sendbuf == data[comm.rank]).all(), "sendbuf was written to"


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("algorithm", [None, *FAMILIES["broadcast"]])
def test_broadcast_gives_every_rank_what_the_root_has(comm, algorithm, form):
    for root in range(comm.size):
        for dtype in DTYPES:
            for count in counts_for(comm.size):
                data = inputs(comm.size, count, dtype)
                buf = data[comm.rank].copy()
                assert perform(comm, form, "broadcast", buf, root=root, algorithm=algorithm) is buf
                assert (buf == data[root]).all(), (root, dtype, count)


def uneven(size):
    return [(3 * rank + 2) % 5 for rank in range(size)]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("algorithm", [None, *FAMILIES["reduce_scatter"]])
def test_reduce_scatter_gives_every_rank_its_part(comm, algorithm, form):
    size, rank = comm.size, comm.rank
    for dtype in DTYPES:
        for op in ops(dtype):
            for counts in [None, [2] * size, [101] * size, [0] * size, uneven(size)]:
                rows = counts or [1] * size
                data = inputs(size, 3 * sum(rows), dtype, op).reshape(size, sum(rows), 3)
                start = sum(rows[:rank])
                want = reduced(data, op)[start : start + rows[rank]]
                sendbuf = data[rank].copy()
                arguments = {"op": op, "counts": counts, "algorithm": algorithm}
                result = perform(comm, form, "reduce_scatter", sendbuf, **arguments)
                assert result.shape == want.shape
                assert (result == want).all(), (dtype, op, counts)
                assert (sendbuf == data[rank]).all(), "sendbuf was written to"
                if form != "persistent":  # a plan in place would add up its own results
                    own = sendbuf[start : start + rows[rank]]
                    assert perform(comm, form, "reduce_scatter", sendbuf, own, **arguments) is own
                    assert (own == want).all(), ("in place", dtype, op, counts)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("algorithm", [None, *FAMILIES["allgather"]])
def test_allgather_gives_every_rank_every_part(comm, algorithm, form):
    size, rank = comm.size, comm.rank
    for dtype in DTYPES:
        for counts in [None, [2] * size, [101] * size, [0] * size, uneven(size)]:
            rows = counts or [1] * size
            data = inputs(1, 3 * sum(rows), dtype).reshape(sum(rows), 3)
            start = sum(rows[:rank])
            part = data[start : start + rows[rank]].copy()
            arguments = {"counts": counts, "algorithm": algorithm}
            result = perform(comm, form, "allgather", part, **arguments)
            assert result.shape == data.shape
            assert (result == data).all(), (dtype, counts)
            whole = np.zeros_like(data)
            own = whole[start : start + rows[rank]]
            own[...] = part
            assert perform(comm, form, "allgather", own, whole, **arguments) is whole
            assert (whole == data).all(), ("in place", dtype, counts)


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


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("algorithm", [None, *FAMILIES["allreduce"]])
def test_random_floats_nan_and_signed_zeros_end_with_the_same_bits_everywhere(comm, algorithm, in_place):
    generator = np.random.default_rng(comm.rank)
    for count in (1000, 10_000, 60_000, 200_000):  # below, within and above the sizes that are reduced by another way
        for op in ("sum", "max", "avg"):
            x = generator.standard_normal(count) * 10.0 ** generator.integers(-20, 20, count)
            x = x.astype("float32")
            x[generator.integers(0, count, count // 5)] = -0.0
            x[generator.integers(0, count, count // 5)] = 0.0
            x[generator.integers(0, count, count // 20)] = np.array([0x7FC00001 + comm.rank], "uint32").view("float32")
            x[0] = np.array([0x7FC00001 + comm.rank], "uint32").view("float32")[0]
            bits = comm.allreduce(x, x if in_place else None, op=op, algorithm=algorithm).view("uint32")
            everybody = comm.allgather(bits).reshape(comm.size, -1)
            assert (everybody == bits).all(), (count, op)


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
