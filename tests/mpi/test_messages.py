"""Point-to-point messages, groups of calls, places of ranks, and the choice of algorithms."""

import os

import numpy as np
import pytest
from ml_dtypes import bfloat16
from mpi4py import MPI

import mpicoll

pytestmark = pytest.mark.mpi


def around(comm):
    return (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size


@pytest.mark.parametrize("dtype", ["float32", "complex64", "float16", bfloat16, "bool", "int8"])
def test_messages_arrive_in_the_order_in_which_they_were_sent(comm, dtype):
    left, right = around(comm)
    sent = [np.full((i, 2), (i + comm.rank) % 2, dtype) for i in range(20)]
    handles = [comm.isend(x, right) for x in sent]
    for i, x in enumerate(sent):
        got = comm.recv(np.empty_like(x), left)
        assert (got == np.full((i, 2), (i + left) % 2, dtype)).all()
    for handle in handles:
        assert handle.wait() is None


def test_sendrecv_passes_around_a_ring(comm):
    left, right = around(comm)
    token = np.array([comm.rank])
    for step in range(comm.size):
        assert token[0] == (comm.rank - step) % comm.size
        token = comm.sendrecv(token, right, np.empty_like(token), left)
    handle = comm.isendrecv(token, right, np.empty(1, int), left)
    assert handle.wait() == left


def test_long_messages_are_sent_while_a_receive_is_posted(comm):
    left, right = around(comm)
    x, y = np.full(1_000_000, comm.rank), np.empty(1_000_000, int)
    handle = comm.irecv(y, left)
    comm.send(x, right)
    assert handle.wait() is y
    assert (y == left).all()


def test_messages_and_collectives_do_not_mix(comm):
    left, right = around(comm)
    a = comm.irecv(np.empty(5, int), left)
    b = comm.iallreduce(np.full(5, comm.rank))
    assert (comm.allreduce(np.full(5, 2 * comm.rank)) == 2 * sum(range(comm.size))).all()
    comm.send(np.full(5, comm.rank), right)
    assert (a.wait() == left).all()
    assert (b.wait() == sum(range(comm.size))).all()


def test_calls_in_a_group_are_complete_at_its_end(comm):
    left, right = around(comm)
    with mpicoll.Communicator(MPI.COMM_WORLD) as other:
        xs = [np.full(1000 + i, comm.rank + i) for i in range(5)]
        ys = [np.empty_like(x) for x in xs]
        with mpicoll.group():
            for i, (x, y) in enumerate(zip(xs, ys, strict=True)):
                assert (comm if i % 2 else other).allreduce(x, y) is y
            got = comm.recv(np.empty(3, int), left)  # before the send: would block outside
            with mpicoll.group():
                comm.send(np.full(3, comm.rank), right)
            nothing = comm.barrier()
            total = other.reduce(xs[0])
        assert nothing is None
        assert (got == left).all()
        for i, y in enumerate(ys):
            assert (y == i * comm.size + sum(range(comm.size))).all()
        if comm.rank == 0:
            assert (total == sum(range(comm.size))).all()
        else:
            assert total is None


def test_a_communicator_can_be_made_inside_a_group(comm):
    with mpicoll.group():
        other = mpicoll.Communicator(MPI.COMM_WORLD)
        y = other.allreduce(np.array([comm.rank]))
    assert other.places == comm.places
    assert y == sum(range(comm.size))
    other.close()


def test_an_exception_leaves_a_group_and_what_was_started_goes_on(comm):
    x = np.full(100, comm.rank)
    y = np.zeros_like(x)

    def fail():
        with mpicoll.group():
            comm.allreduce(x, y)
            raise ArithmeticError

    with pytest.raises(ArithmeticError):
        fail()
    assert comm.allreduce(np.array([1])) == comm.size  # blocking again
    while not (y == sum(range(comm.size))).all():
        comm.progress()
    comm.barrier()


def test_a_wrong_argument_in_a_group_is_told_at_once(comm):
    def fail():
        with mpicoll.group():
            comm.allreduce([1, 2])

    with pytest.raises(TypeError, match="allreduce: sendbuf is of type list"):
        fail()


def test_ranks_of_this_machine_share_node_0(comm):
    assert (comm.node, comm.local_rank) == (0, comm.rank)
    assert comm.places == [(0, rank) for rank in range(comm.size)]


def test_nodes_are_numbered_by_their_lowest_rank():
    from mpicoll.topology import number_nodes

    assert number_nodes("bbaac") == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0)]
    assert number_nodes("abab") == [(0, 0), (1, 0), (0, 1), (1, 1)]


def test_the_choice_is_explained(comm):
    choice = comm.explain("allreduce", 1 << 20)
    assert choice.algorithm in choice.predicted
    assert f"predicted time for 1048576 bytes on {comm.size} ranks" in str(choice)
    assert comm.explain("allreduce", 8, "tree")[:3] == ("tree", "the call names it", {})
    for wrong in ("x", -1, None):
        with pytest.raises(ValueError, match="explain: nbytes is"):
            comm.explain("allreduce", wrong)
    with pytest.raises(ValueError, match="explain: 'allreduc' is no collective"):
        comm.explain("allreduc", 8)


def test_rank_0_decides_for_all_what_is_allowed(comm, monkeypatch):
    monkeypatch.setenv("MPICOLL_ALGORITHM", "ring" if comm.rank == 0 else "nonsense")
    with mpicoll.Communicator(MPI.COMM_WORLD) as other:
        assert other.explain("allreduce", 8).algorithm == "ring"
        assert "of those that MPICOLL_ALGORITHM allows (ring)" in other.explain("allreduce", 8).reason
        before = other.bytes_sent
        assert before == 0
        other.allreduce(np.ones(5))
        with pytest.raises(ValueError, match="barrier: MPICOLL_ALGORITHM allows none of its algorithms"):
            other.barrier()
        other.barrier(algorithm="recursive_doubling")
    monkeypatch.setitem(os.environ, "MPICOLL_ALGORITHM", "allreduce:^nonsense")
    with pytest.raises(
        ValueError, match="'nonsense' in 'allreduce:\\^nonsense' is no algorithm of allreduce; there are"
    ):
        mpicoll.Communicator(MPI.COMM_WORLD)
