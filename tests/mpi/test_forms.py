"""Blocking calls, handles and plans together: any number in flight, completed in any order."""

import gc
import random
import warnings
import weakref

import numpy as np
import pytest

import mpicoll
from mpicoll.progress import replay as replay_module

pytestmark = pytest.mark.mpi


def total(size, value):
    """The sum over ranks of value + rank."""
    return size * value + size * (size - 1) // 2


def test_sixty_handles_completed_in_a_different_order_on_each_rank(comm):
    starts = [
        lambda x: comm.iallreduce(x),
        lambda x: comm.iallreduce(x, algorithm="ring"),
        lambda x: comm.iallreduce(x, algorithm="tree"),
        lambda x: comm.ireduce(x, root=comm.size - 1),
    ]
    inputs = [np.full(100 * i, i + comm.rank, "float64") for i in range(60)]
    handles = [starts[i % len(starts)](x) for i, x in enumerate(inputs)]
    order = list(range(60))
    random.Random(comm.rank).shuffle(order)
    for i in order:
        result = handles[i].wait()
        if i % len(starts) == 3 and comm.rank != comm.size - 1:
            assert result is None
        else:
            assert len(result) == 100 * i
            assert (result == total(comm.size, i)).all()
    assert all(handle.test() for handle in handles)


def test_more_handles_than_blocks_of_tags_are_started_in_turn(comm):
    x = np.array([comm.rank], "int64")
    handles = [comm.iallreduce(x) for _ in range(300)]
    assert all(handle.wait() == total(comm.size, 0) for handle in reversed(handles))


def test_blocking_calls_drive_what_is_in_flight(comm):
    handle = comm.iallreduce(np.full(1000, comm.rank, "int32"), algorithm="ring")
    for i in range(100):
        assert comm.allreduce(np.array([i + comm.rank])) == total(comm.size, i)
    while not handle.test():
        pass
    assert (handle.wait() == total(comm.size, 0)).all()


def test_two_communicators_do_not_mix(comm):
    from mpi4py import MPI

    with mpicoll.Communicator(MPI.COMM_WORLD) as other:
        a = comm.iallreduce(np.full(50, 1 + comm.rank))
        b = other.iallreduce(np.full(50, 1000 + comm.rank))
        assert (b.wait() == total(comm.size, 1000)).all()
        assert (a.wait() == total(comm.size, 1)).all()


def test_sub_communicators_work_beside_the_world(comm):
    from mpi4py import MPI

    color = comm.rank % 2
    members = [rank for rank in range(comm.size) if rank % 2 == color]
    mine = MPI.COMM_WORLD.Split(color)
    with mpicoll.Communicator(mine) as half:
        handle = comm.iallreduce(np.array([comm.rank]))
        assert half.allreduce(np.array([comm.rank])) == sum(members)
        assert handle.wait() == sum(range(comm.size))
    mine.Free()


@pytest.mark.parametrize("algorithm", ["ring", "tree", "recursive_doubling"])
def test_plans_play_again_with_new_data_in_the_same_buffers(comm, algorithm):
    x, y = np.empty(777, "float32"), np.empty(777, "float32")
    plan = comm.allreduce_init(x, y, algorithm=algorithm)
    for i in range(20):
        x[:] = i + comm.rank
        plan.start()
        while i % 2 and not plan.test():
            pass
        result = plan.wait() if not i % 2 else y
        assert result is y
        assert (y == total(comm.size, i)).all()
    plan.free()
    plan.free()


def test_plans_blocking_calls_and_handles_are_in_flight_together(comm):
    plans = [comm.allreduce_init(np.full(300, i + comm.rank), algorithm="ring") for i in range(5)]
    for plan in plans:
        plan.start()
    handle = comm.iallreduce(np.array([comm.rank]))
    assert comm.allreduce(np.array([7 + comm.rank])) == total(comm.size, 7)
    for i, plan in reversed(list(enumerate(plans))):
        assert (plan.wait() == total(comm.size, i)).all()
        plan.free()
    assert handle.wait() == total(comm.size, 0)


def test_a_plan_on_one_rank_matches_a_generator_on_another(comm):
    from mpicoll import jobs
    from mpicoll.progress import engine, path
    from mpicoll.progress.call import LiveCall

    x = np.full(1000, comm.rank, "int64")
    plan = comm.allreduce_init(x, algorithm="ring")
    if comm.rank == 0:
        plan.start()
        result = plan.wait()
    else:  # the same algorithm on the tags of the plan's block
        job = jobs.allreduce(comm, x, None, "sum", "ring")
        call = LiveCall(comm._transport, job, next(iter(comm._transport.plans)))
        engine.run(path.Path(call, job.program(call.comm, call.op)))
        result = job.result
    plan.free()
    assert (result == total(comm.size, 0)).all()


def test_a_thread_drives_what_is_in_flight(comm):
    with mpicoll.progress.thread(interval=1e-4):
        handles = [comm.iallreduce(np.full(5000, i + comm.rank), algorithm="ring") for i in range(20)]
        assert comm.allreduce(np.array([comm.rank])) == total(comm.size, 0)
        while not all(handle.done for handle in handles):  # nobody here pumps
            pass
        for i, handle in enumerate(handles):
            assert (handle.wait() == total(comm.size, i)).all()


def test_plans_that_are_freed_give_back_their_tags(comm):
    blocks = len(comm._transport.plan_blocks)
    x = np.zeros(1)
    for _ in range(3):
        plans = [comm.allreduce_init(x, x) for _ in range(10)]
        assert sorted(comm._transport.plans) == list(comm._transport.plan_blocks[:10])
        for plan in plans:
            plan.free()
    assert not comm._transport.plans
    assert blocks >= 300


def test_when_the_blocks_for_plans_run_out_the_error_says_so(comm, monkeypatch):
    monkeypatch.setattr(comm._transport, "plan_blocks", range(200, 202))
    x = np.zeros(1)
    plans = [comm.allreduce_init(x, x) for _ in range(2)]
    with pytest.raises(RuntimeError, match="all 2 plans of this communicator are in use"):
        comm.allreduce_init(x, x)
    for plan in plans:
        plan.free()


def test_scratch_memory_is_used_again(comm):
    x = np.ones(10_000)
    comm.allreduce(x, algorithm="ring")
    free = {key: len(arrays) for key, arrays in comm._transport.pool.items()}
    for _ in range(10):
        comm.allreduce(x, algorithm="ring")
        comm.iallreduce(x, algorithm="ring").wait()
    assert {key: len(arrays) for key, arrays in comm._transport.pool.items()} == free


def test_bytes_sent_are_those_of_the_formula(comm):
    from mpicoll import cost
    from mpicoll.algorithms import FAMILIES
    from mpicoll.algorithms.cut import even

    for algorithm in FAMILIES["allreduce"]:
        for count in (0, 1, 10, 997):
            x = np.ones(count, "float32")
            counts = even(count, comm.size)
            want = cost.of("allreduce", algorithm, comm.rank, counts, 4).sent
            plan = comm.allreduce_init(x, x, algorithm=algorithm)
            for form in (
                lambda x=x, a=algorithm: comm.allreduce(x, x, algorithm=a),
                lambda p=plan: (p.start(), p.wait()),
            ):
                before = comm.bytes_sent
                form()
                assert comm.bytes_sent - before == want
            plan.free()


def test_the_textbook_ring_started_at_the_right_chunk_equals_ring_bit_for_bit(comm):
    from mpi4py import MPI

    from mpicoll.textbook import ring_allreduce

    for count in (0, 1, comm.size + 1, 1000):
        x = np.random.default_rng(comm.rank).standard_normal(count)
        ours = comm.allreduce(x, algorithm="ring")
        theirs = x.copy()
        ring_allreduce(MPI.COMM_WORLD, theirs)
        assert (ours.view("int64") == theirs.view("int64")).all()
        shifted = np.round(x * 1000)
        want = comm.allreduce(shifted)
        ring_allreduce(MPI.COMM_WORLD, shifted, start=0)  # the owners differ, the sum does not
        assert (shifted == want).all()


def test_calls_that_come_again_with_the_same_arrays_are_replayed(comm):
    x, y = np.empty(100, "float32"), np.empty(100, "float32")
    replays = comm._replays
    replays.clear()
    for i in range(6):
        x[:] = i + comm.rank
        assert comm.allreduce(x, y) is y
        assert (y == total(comm.size, i)).all()
        assert len(replays.known) == (i > 0)
    assert (comm.allreduce(x, y, op="max") == 5 + comm.size - 1).all()  # another call
    assert (comm.allreduce(x, y) == total(comm.size, 5)).all()
    fresh = comm.allreduce(x)
    assert fresh is not y
    assert comm.allreduce(x) is not fresh


def test_a_replay_is_not_taken_for_another_array_or_dtype(comm):
    comm._replays.clear()
    for i in range(100):  # arrays that come and go, at the addresses of those before them
        assert comm.allreduce(np.full(10, i + comm.rank), np.empty(10, int))[3] == total(comm.size, i)
    x, y = np.zeros(4, "float32"), np.zeros(4, "float32")
    for _ in range(3):
        comm.allreduce(x, y)
    assert len(comm._replays.known) == 1
    with warnings.catch_warnings():  # some NumPy versions deprecate it
        warnings.simplefilter("ignore")
        x.dtype = y.dtype = "int32"
    x[:] = comm.rank
    assert (comm.allreduce(x, y) == total(comm.size, 0)).all()


def test_replays_match_ranks_that_do_not_replay_and_are_few(comm):
    pairs = [(np.full(8, i + comm.rank), np.empty(8, int)) for i in range(40)]
    for _ in range(3):
        for i, (x, y) in enumerate(pairs[:20]):
            mine = (x, y) if comm.rank == 0 else (x.copy(), y.copy())
            assert (comm.allreduce(*mine) == total(comm.size, i)).all()
    for x, y in pairs:
        for _ in range(3):
            comm.allreduce(x, y)
    assert len(comm._replays.known) == 16
    comm._replays.clear()


def test_replays_keep_no_array_alive_and_hold_little_scratch(comm, monkeypatch):
    monkeypatch.setattr(replay_module, "SCRATCH", 1 << 20)
    replays = comm._replays
    replays.clear()
    x, y = np.ones(1000), np.empty(1000)
    for _ in range(3):
        comm.allreduce(x, y)
    (replay,) = replays.known.values()
    assert replay.usable()
    refs = [weakref.ref(x), weakref.ref(y)]
    del x, y
    gc.collect()
    assert not any(ref() is not None for ref in refs)
    assert not replay.usable()
    large = [np.empty(replay_module.SCRATCH // 24) for _ in range(5)]
    for x in large:
        for _ in range(3):
            x[:] = comm.rank
            assert (comm.allreduce(x, x, algorithm="recursive_doubling") == total(comm.size, 0)).all()
    assert sum(replay.scratch for replay in replays.known.values()) <= replay_module.SCRATCH
    x = np.empty(2 * replay_module.SCRATCH // 8)
    for _ in range(3):
        x[:] = comm.rank
        assert (comm.allreduce(x, x, algorithm="recursive_doubling") == total(comm.size, 0)).all()
    assert not any(replay.scratch > replay_module.SCRATCH for replay in replays.known.values())
    replays.clear()


def test_results_of_handles_are_not_kept_alive(comm):
    results = []
    for _ in range(5):
        result = comm.iallreduce(np.ones(1000)).wait()
        results.append(weakref.ref(result))
        del result
    gc.collect()
    assert not any(ref() is not None for ref in results)
