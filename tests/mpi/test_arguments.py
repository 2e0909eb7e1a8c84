"""Wrong arguments and wrong order of calls raise before any message is sent, and say what to do."""

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll

pytestmark = pytest.mark.mpi

X = np.zeros(10, "float32")
STRIDED = np.zeros((4, 6), "float32")[:, ::2]
READ_ONLY = np.zeros(10, "float32")
READ_ONLY.flags.writeable = False

WRONG = [
    (lambda c: c.allreduce(3.0), TypeError, "allreduce: sendbuf is of type float"),
    (lambda c: c.allreduce([1, 2]), TypeError, "pass a NumPy array"),
    (lambda c: c.broadcast("text"), TypeError, "broadcast: buf is of type str"),
    (lambda c: c.allreduce(np.ma.zeros(3)), TypeError, "sendbuf is of type MaskedArray"),
    (lambda c: c.allreduce(np.zeros(3, object)), TypeError, "sendbuf has dtype object; supported are float32"),
    (lambda c: c.allreduce(np.zeros(3, ">f4")), TypeError, "sendbuf has dtype >f4"),
    (lambda c: c.allreduce(STRIDED), ValueError, r"sendbuf is not C-contiguous: shape \(4, 3\), strides \(24, 8\)"),
    (lambda c: c.allreduce(X, STRIDED), ValueError, "recvbuf is not C-contiguous"),
    (lambda c: c.allreduce(X, np.zeros(12, "float32")), ValueError, "recvbuf has 12 elements, sendbuf has 10"),
    (lambda c: c.allreduce(X, np.zeros(10)), TypeError, "recvbuf has dtype float64, sendbuf has float32"),
    (lambda c: c.allreduce(X, READ_ONLY), ValueError, "recvbuf is read-only"),
    (lambda c: c.allreduce(READ_ONLY, READ_ONLY), ValueError, "recvbuf is read-only"),
    (lambda c: c.allreduce(X, op="mean"), ValueError, "op is 'mean'; there are 'sum', 'prod', 'max', 'min', 'avg'"),
    (lambda c: c.allreduce(X, op=None), ValueError, "op is None"),
    (lambda c: c.allreduce(X, op=["sum"]), ValueError, "op is"),
    (lambda c: c.allreduce(np.zeros(3, int), op="avg"), TypeError, "not defined for dtype int64: the average"),
    (lambda c: c.allreduce(X, algorithm="rign"), ValueError, "algorithm is 'rign'; there are 'recursive"),
    (lambda c: c.broadcast(X, algorithm="recursive_doubling"), ValueError, "there are 'tree'"),
    (lambda c: c.allreduce(X, algorithm=["ring"]), ValueError, r"algorithm is \['ring'\]; there are"),
    (lambda c: c.broadcast(X, root=c.size), ValueError, "broadcast: root is [0-9]+; ranks go from 0 to"),
    (lambda c: c.reduce(X, root=-1), ValueError, "reduce: root is -1"),
    (lambda c: c.reduce(X, root=0.0), TypeError, "root is 0.0; it is a rank"),
    (lambda c: c.allreduce(X[:-1], X[1:]), ValueError, "sendbuf and recvbuf overlap"),
    (lambda c: c.reduce_scatter(np.zeros(())), ValueError, "sendbuf has no axis"),
    (lambda c: c.reduce_scatter(X, counts=[10]  * (c.size + 1)), ValueError, "it holds one count of rows"),
    (lambda c: c.reduce_scatter(X, counts=[11] + [0] * (c.size - 1)), ValueError, "counts add up to 11"),
    (lambda c: c.reduce_scatter(X, counts=[-1] * c.size), ValueError, "0 or more"),
    (lambda c: c.reduce_scatter(X, counts=3), TypeError, "counts is 3"),
    (lambda c: c.allgather(X, counts=[3] * c.size), ValueError, "is 3, sendbuf's first axis has length 10"),
    (lambda c: c.allgather(X, np.zeros(3, "float32")), ValueError, "recvbuf has 3 elements, all ranks together send"),
    (lambda c: mpicoll.Communicator(MPI.COMM_NULL), ValueError, "this rank is not part of it"),
    (lambda c: mpicoll.Communicator(None), TypeError, "mpi_comm is of type NoneType"),
]  # fmt: skip


@pytest.mark.parametrize("case", range(len(WRONG)))
def test_a_wrong_argument_raises_before_any_message_is_sent(comm, case):
    call, error, message = WRONG[case]
    before = comm.bytes_sent
    with pytest.raises(error, match=message):
        call(comm)
    assert comm.bytes_sent == before
    assert comm.allreduce(np.array([1])) == comm.size  # and the communicator goes on


def test_a_first_axis_that_does_not_divide_is_named(comm):
    if comm.size > 1:
        with pytest.raises(ValueError, match="length 1, which does not divide by"):
            comm.reduce_scatter(np.zeros((1, 5)))


def test_a_read_only_array_can_be_sent(comm):
    assert (comm.allreduce(READ_ONLY) == 0).all()
    if comm.rank == 0:
        comm.broadcast(READ_ONLY)
    else:
        comm.broadcast(np.zeros(10, "float32"))


def test_arguments_that_do_not_matter_here_are_not_looked_at(comm):
    for _ in range(3):
        result = comm.reduce(X, recvbuf=None if comm.rank == 0 else [], root=0)
        assert (result is None) == (comm.rank != 0)


def test_arrays_that_change_after_a_call_are_checked_again(comm):
    x, y = np.zeros(6, "float32"), np.zeros(6, "float32")
    for _ in range(3):
        comm.allreduce(x, y)
    y.flags.writeable = False
    before = comm.bytes_sent
    with pytest.raises(ValueError, match="recvbuf is read-only"):
        comm.allreduce(x, y)
    assert comm.bytes_sent == before
    y.flags.writeable = True
    comm.allreduce(x, y)
    for _ in range(3):
        comm.broadcast(x, root=0)
    with pytest.raises(TypeError, match=r"root is 0\.0"):
        comm.broadcast(x, root=0.0)


def test_operations_of_mpi4py_are_accepted_for_their_names(comm):
    x = np.array([comm.rank])
    assert comm.allreduce(x, op=MPI.SUM) == sum(range(comm.size))
    assert comm.allreduce(x, op=MPI.MAX) == comm.size - 1
    with pytest.raises(ValueError, match="there are 'sum', 'prod', 'max'"):
        comm.allreduce(x, op=MPI.BAND)


def test_a_broken_communicator_does_nothing_more(comm):
    other = mpicoll.Communicator(MPI.COMM_WORLD)
    x, y = np.zeros(3), np.zeros(3)
    for _ in range(3):
        other.allreduce(x, y)
    plan = other.allreduce_init(x, y)
    with pytest.raises(ArithmeticError), other:
        raise ArithmeticError("gone wrong")
    what = "cannot be used any more: it was left by ArithmeticError: gone wrong"
    for call in (
        lambda: other.allreduce(x, y),
        lambda: other.iallreduce(x),
        lambda: other.allreduce_init(x),
        plan.start,
    ):
        with pytest.raises(RuntimeError, match=what):
            call()
    plan.free()
    other.close()


def test_a_plan_started_twice_or_not_at_all_is_an_error(comm):
    plan = comm.allreduce_init(np.zeros(5))
    with pytest.raises(RuntimeError, match="allreduce plan: it was not started"):
        plan.wait()
    plan.start()
    with pytest.raises(RuntimeError, match="it was started already"):
        plan.start()
    with pytest.raises(RuntimeError, match="it is under way; wait for it before you free it"):
        plan.free()
    plan.wait()
    for _ in range(2):
        plan.start()
        while not plan.test():
            pass
        assert plan.test()
        assert plan.wait() is plan.wait()  # as MPI's wait for a request that is not active
    plan.free()
    with pytest.raises(RuntimeError, match="it is freed"):
        plan.start()


def test_closing_with_something_in_flight_is_an_error(comm):
    other = mpicoll.Communicator(MPI.COMM_WORLD)
    plan = other.allreduce_init(np.zeros(5))
    plan.start()
    with pytest.raises(RuntimeError, match="handles or plans are still under way"):
        other.close()
    plan.wait()
    other.close()
    with pytest.raises(RuntimeError, match="allreduce: this communicator cannot be used any more: it is closed"):
        other.allreduce(np.zeros(1))


def test_wait_with_a_timeout_leaves_the_handle_alive(comm):
    world = MPI.COMM_WORLD
    if comm.size == 1:
        return
    token = np.zeros(1, "uint8")
    if comm.rank == 0:  # comes only when the others have seen their timeout
        for rank in range(1, comm.size):
            world.Recv(token, rank, tag=9)
        assert comm.iallreduce(np.array([comm.rank])).wait() == sum(range(comm.size))
    else:
        handle = comm.iallreduce(np.array([comm.rank]))
        with pytest.raises(mpicoll.Timeout, match=r"waits in allreduce \(.*round"):
            handle.wait(timeout=1e-3)
        world.Send(token, 0, tag=9)
        assert handle.wait() == sum(range(comm.size))
