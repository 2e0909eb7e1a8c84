"""mpicoll.bench on real messages: right calls are found right in every form, and planted faults are found and named."""

from types import SimpleNamespace

import numpy as np
import pytest
from mpi4py import MPI

from mpicoll import cost, selection
from mpicoll.algorithms.cut import even
from mpicoll.benching import overlap, timing
from mpicoll.benching.buffers import Buffers, rows_for
from mpicoll.benching.cases import Case, pattern_of, places, whole
from mpicoll.benching.contenders import Mpi, Ours
from mpicoll.benching.limit import ALIKE, Limit
from mpicoll.benching.options import MEASURED, REDUCING, ROOTED

pytestmark = [pytest.mark.mpi(min_size=2), pytest.mark.ranks(range(4))]


def case_of(comm, name, nbytes=64, dtype="float32"):
    dtype, op, root = np.dtype(dtype), "sum" if name in REDUCING else None, comm.size - 1 if name in ROOTED else None
    return Case(name, dtype, op, root, comm.rank, comm.size, whole(name, nbytes, dtype.itemsize, comm.size))


def measure(comm, contenders, case, in_place, warmup=1, repetitions=2, check=True):
    buffers = Buffers(case, in_place, pattern_of(case.dtype, case.op, case.size, np.asarray), rows_for(case.nbytes))
    return timing.measure(MPI.COMM_WORLD, contenders, case, buffers, warmup, repetitions, check, lambda: None)


@pytest.mark.parametrize("form", ["blocking", "nonblocking", "persistent"])
@pytest.mark.parametrize("name", MEASURED)
def test_what_is_right_is_found_right(comm, name, form, monkeypatch):
    monkeypatch.setattr(timing, "TURN", 1e-5)
    if (name, form) == ("sendrecv", "persistent"):
        pytest.skip("there is none")
    dtypes = ("float32", "int8") if form == "blocking" else ("float32",)
    for dtype in dtypes:
        case = case_of(comm, name, dtype=dtype)
        for in_place in places(name):
            contenders = [Ours(comm, form), Mpi(MPI.COMM_WORLD, False)]
            if contenders[1].refusal(case, in_place):
                contenders.pop()
            for who, found in zip(contenders, measure(comm, contenders, case, in_place), strict=True):
                checked = name != "barrier" and not who.unchecked(case)
                assert found.wrong == (0 if checked else None), found.first
                assert found.throughput.shape == (comm.size, 2)
                assert found.latency.shape == (comm.size, 2 * 16)
                assert (found.slowest > 0).all()


def test_every_algorithm_can_be_forced(comm):
    case = case_of(comm, "allreduce")
    every = [Ours(comm, "blocking", name) for name in selection.family("allreduce")]
    assert [who.label(case) for who in every] == list(selection.family("allreduce"))
    assert [found.wrong for found in measure(comm, every, case, True, 0, 1)] == [0] * len(every)


class Faulty:
    """A communicator whose all-reduce does something wrong in its twentieth call, on the highest rank."""

    def __init__(self, comm, fault):
        self.comm, self.fault, self.number = comm, fault, 0

    def allreduce(self, send, recv, **options):
        before = recv.copy()
        self.comm.allreduce(send, recv, **options)
        self.number += 1
        if self.number == 20 and self.comm.rank == self.comm.size - 1:
            self.fault(send, recv, before)


def wrong_element(send, recv, before):
    recv[5] += 1


def nothing_written(send, recv, before):
    recv[...] = before


def beyond_the_end(send, recv, before):
    np.lib.stride_tricks.as_strided(recv, (len(recv) + 1,))[-1] = 0


def sendbuf_written(send, recv, before):
    send[3] = -1


class Stale:
    """Keeps its first result for the twentieth call."""

    def __init__(self):
        self.first = None

    def __call__(self, send, recv, before):
        recv[...] = self.first


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (wrong_element, ": index 5: expected "),
        (nothing_written, ": index 0: expected "),
        (beyond_the_end, ": guard after recvbuf: byte +0 from its end: expected 0xa5, got 0x0 (4 wrong"),
        (sendbuf_written, ": sendbuf was written to: index 3: it held "),
    ],
)
def test_a_fault_in_one_call_of_many_is_found_and_named(comm, fault, told, monkeypatch):
    monkeypatch.setattr(timing, "TURN", 1e-5)
    faulty = Faulty(comm, fault)
    (found,) = measure(comm, [Ours(faulty, "blocking")], case_of(comm, "allreduce"), False, warmup=0)
    assert found.first.startswith(f"rank {comm.size - 1}, call 19{told}"), found.first
    assert found.wrong == {wrong_element: 1, nothing_written: 16, beyond_the_end: 4, sendbuf_written: 1}[fault]


@pytest.mark.parametrize("in_place", [False, True])
def test_a_stale_result_is_found(comm, in_place, monkeypatch):
    monkeypatch.setattr(timing, "TURN", 1e-5)
    stale = Stale()
    faulty = Faulty(comm, stale)
    honest = faulty.allreduce

    def allreduce(send, recv, **options):
        honest(send, recv, **options)
        if stale.first is None:
            stale.first = recv.copy()

    faulty.allreduce = allreduce
    (found,) = measure(comm, [Ours(faulty, "blocking")], case_of(comm, "allreduce"), in_place, warmup=0)
    assert found.wrong == 16
    assert f"rank {comm.size - 1}, call 19: index 0: expected " in found.first


def test_nothing_is_found_where_nothing_is_checked(comm):
    (found,) = measure(
        comm, [Ours(Faulty(comm, wrong_element), "blocking")], case_of(comm, "allreduce"), False, check=False
    )
    assert found.wrong is found.first is None


@pytest.mark.parametrize("name", ALIKE)
def test_the_limit_moves_as_many_bytes(comm, name):
    case = case_of(comm, name, nbytes=3 << 20)
    buffers = Buffers(case, False, pattern_of(case.dtype, case.op, case.size, np.asarray), 1)
    ours = Ours(comm, "blocking")
    (call,) = Limit(ours).calls(case, buffers)
    _, reductions, copies = call.args
    does = cost.of(name, ours.label(case), case.rank, even(case.count, case.size), 4)
    assert sum(slot.nbytes for slot, *_ in reductions) == does.reduced
    assert sum(out.nbytes for out, _ in copies) == does.sent - does.reduced
    for arrays in reductions:
        assert len({len(array) for array in arrays}) == 1
    call()
    assert Limit(ours).refusal(case, False) is None
    assert "ranks do not all move as many bytes" in Limit(ours).refusal(case_of(comm, "gather"), False)


def test_overlap_is_measured(comm):
    case = case_of(comm, "allreduce")
    buffers = Buffers(case, False, pattern_of(case.dtype, case.op, case.size, np.asarray), 1)
    found, wrong, first = overlap.measure(MPI.COMM_WORLD, Ours(comm, "nonblocking"), case, buffers, 3, np.asarray)
    assert (wrong, first) == (0, None)
    assert found["osu_percent"] == overlap.osu(found["pure_us"], found["compute_us"], found["overall_us"])
    assert found["imb_percent"] == overlap.imb(found["pure_us"], found["compute_us"], found["overall_us"])
    assert min(found["pure_us"], found["compute_us"], found["overall_us"]) > 0


class LateFault:
    """A communicator whose nonblocking all-reduce of the highest rank is wrong in its seventh call, when it ends."""

    def __init__(self, comm):
        self.comm, self.number, self.progress = comm, 0, comm.progress

    def iallreduce(self, send, recv, **options):
        handle = self.comm.iallreduce(send, recv, **options)
        self.number += 1
        if self.number != 7 or self.comm.rank < self.comm.size - 1:
            return handle
        return SimpleNamespace(wait=lambda: (handle.wait(), wrong_element(send, recv, None)))


@pytest.mark.parametrize("check", [True, False])
def test_a_fault_beside_computation_is_found(comm, check):
    case = case_of(comm, "allreduce")
    buffers = Buffers(case, False, pattern_of(case.dtype, case.op, case.size, np.asarray), 1)
    ours = Ours(LateFault(comm), "nonblocking")
    _, wrong, first = overlap.measure(MPI.COMM_WORLD, ours, case, buffers, 3, np.asarray, check)
    if check:
        assert wrong == 1
        assert first.startswith(f"rank {comm.size - 1}, beside computation: index 5: expected ")
    else:
        assert wrong is first is None


def test_a_ratio_is_taken_within_a_repetition(comm):
    ours = timing.Found(np.array([[1.0, 20, 3], [2, 10, 3]]), None, 0, None)
    theirs = timing.Found(np.array([[4.0, 10, 6], [4, 10, 1]]), None, 0, None)
    assert timing.ratio(ours, theirs) == {"q1": 0.5, "median": 0.5, "q3": 1.25}
