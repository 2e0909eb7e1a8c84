"""With MPICOLL_DEBUG=1 ranks that call different things all raise, with a table, before anything is sent."""

from types import SimpleNamespace

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll
from mpicoll import debug

pytestmark = [pytest.mark.mpi(min_size=2), pytest.mark.ranks(range(5))]


@pytest.fixture
def checked(monkeypatch):
    monkeypatch.setenv(debug.VARIABLE, "1")
    with mpicoll.Communicator(MPI.COMM_WORLD) as comm:
        yield comm
        assert comm.allreduce(np.ones(1))[0] == comm.size  # it can still be used


def torch_like(array):
    """An array of another library, which only lends its memory."""
    return SimpleNamespace(__dlpack__=array.__dlpack__, __dlpack_device__=array.__dlpack_device__)


def other(comm, usual, unusual):
    """What the last rank does otherwise."""
    return unusual if comm.rank == comm.size - 1 else usual


def mismatch(comm, call, *told):
    with pytest.raises(debug.CollectiveMismatch) as caught:
        call()
    text = str(caught.value)
    assert text.startswith("the ranks of this communicator call different collectives:\n")
    for words in told:
        assert words in text, text
    assert len({str(error) for error in MPI.COMM_WORLD.allgather(text)}) == 1
    assert f"rank {comm.size - 1} " in text
    assert "test_debug.py:" in text


def test_what_differs_is_in_the_table(checked):
    comm, x = checked, np.ones(6, np.float32)
    mismatch(comm, lambda: comm.allreduce(other(comm, x, x[:5])), "allreduce float32 x 6 sum", "float32 x 5")
    mismatch(comm, lambda: comm.allreduce(other(comm, x, x.astype("f8"))), "float32 x 6", "float64 x 6")
    mismatch(comm, lambda: comm.allreduce(x, op=other(comm, "sum", "max")), "x 6 sum", "x 6 max")
    mismatch(comm, lambda: comm.broadcast(x, root=other(comm, 0, 1)), "root=0", "root=1")
    mismatch(comm, lambda: comm.allreduce(x, algorithm=other(comm, None, "ring")), "algorithm=ring")
    mismatch(comm, lambda: other(comm, comm.barrier, lambda: comm.reduce(x))(), "barrier", "reduce float32 x 6 sum")
    mismatch(comm, lambda: other(comm, comm.allreduce, comm.iallreduce)(x), "allreduce nonblocking float32")
    mismatch(comm, lambda: other(comm, comm.allreduce, comm.allreduce_init)(x), "allreduce plan")


def test_a_skipped_call_is_seen_by_its_number(checked):
    comm, x = checked, np.ones(6)
    if comm.rank != comm.size - 1:
        with pytest.raises(debug.CollectiveMismatch, match=r"call 1 .*\n.*call 1 "):
            comm.allreduce(x)
    else:
        with pytest.raises(debug.CollectiveMismatch, match="allgather float64"):
            comm.allgather(x)


def test_what_may_differ_does(checked):
    comm = checked
    counts = [rank + 1 for rank in range(comm.size)]
    mine = np.full(comm.rank + 1, float(comm.rank))
    assert (comm.allgather(mine, counts=counts) == np.repeat(np.arange(comm.size), counts)).all()
    send = np.repeat(np.arange(comm.size * 1.0), comm.rank + 1)
    got = np.empty(sum(counts))
    comm.alltoallv(send, [comm.rank + 1] * comm.size, got, counts)
    assert (got == comm.rank).all()
    plan = comm.allreduce_init(np.full(3, 2.0))
    for _ in range(2):
        plan.start()
        assert (plan.wait() == 2 * comm.size).all()
    plan.free()
    x = np.arange(4.0)
    assert (comm.allreduce(x, x) == comm.size * np.arange(4)).all()  # in place: what is sent is not written over
    with mpicoll.group():
        a, b = comm.allreduce(np.ones(2)), comm.broadcast(np.full(2, 7.0))
    assert (a == comm.size).all()
    assert (b == 7).all()


def test_a_plan_that_one_rank_does_not_start_is_found(checked):
    comm = checked
    plan = comm.allreduce_init(np.ones(3))
    mismatch(comm, other(comm, plan.start, comm.barrier), "allreduce start of a plan", "barrier")
    plan.free()


def test_plans_that_are_started_in_another_order_are_found(checked):
    comm = checked
    plans = [comm.allreduce_init(np.ones(3)) for _ in range(2)]
    mismatch(comm, other(comm, *plans).start, "allreduce start of a plan float64 x 3 sum (its tags begin at ")
    for plan in plans:
        plan.free()


def test_long_counts_are_compared_to_their_end(checked):
    comm = checked
    numbers = debug.Checks(comm.rank, comm._tell_all)
    counts = list(range(1000, 1500))
    numbers.compare({"counts": counts})
    mismatch(
        comm, lambda: numbers.compare({"counts": [*counts[:-1], other(comm, 1499, 1498)]}), "counts=[1000, ", "..."
    )


def test_comparing_counts_no_bytes_and_no_calls(checked):
    x, counted = np.ones(1 << 18, np.float32), []
    with mpicoll.Communicator(MPI.COMM_WORLD) as plain:
        plain._checks = None
        for comm in (checked, plain):
            before = comm.bytes_sent, comm._transport.calls
            handles = [comm.iallreduce(x, algorithm="ring") for _ in range(3)]  # a comparison drives those before
            for handle in handles:
                handle.wait()
            counted.append((comm.bytes_sent - before[0], comm._transport.calls - before[1]))
    assert counted[0] == counted[1]


def test_memory_that_is_to_be_written_holds_no_number(checked):
    comm, got = checked, np.zeros(3)

    def nothing(c, sendbuf, result, op):
        yield comm_scratch.append(c.scratch(sendbuf))

    comm_scratch = []
    comm.allreduce(np.ones(3), got, algorithm=nothing)
    assert np.isnan(got).all()
    assert np.isnan(comm_scratch[0]).all()
    lent = torch_like(got)
    got[:] = 1
    assert comm.allreduce(np.ones(3), lent, algorithm=nothing) is lent
    assert np.isnan(got).all()
    plan = comm.allreduce_init(np.ones(3), got, algorithm=nothing)
    for _ in range(2):
        got[:] = 1
        plan.start()
        plan.wait()
        assert np.isnan(got).all()
    plan.free()
    part, whole = np.zeros(1), np.ones(comm.size) if comm.rank == 0 else None
    comm.scatter(whole, part, algorithm=lambda c, chunks, result, root: nothing(c, part, result, None))
    assert np.isnan(part).all()


def test_a_wrong_value_is_told_on_every_rank(monkeypatch):
    monkeypatch.setenv(debug.VARIABLE, "yes" if MPI.COMM_WORLD.rank == 0 else "1")
    with pytest.raises(ValueError, match="MPICOLL_DEBUG is 'yes'; it is 1, or 0"):
        mpicoll.Communicator(MPI.COMM_WORLD)
