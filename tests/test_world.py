"""The world: every finding has a planted bug that is found by name, beside the correct program that passes."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from mpicoll.algorithms import FAMILIES, prepare
from mpicoll.algorithms.cut import even
from mpicoll.world import Numbers, World, faults


def run(size, program, count=5, seed=None):
    """Every rank runs program(comm, x, op) on its own contributions x; returns what the ranks did."""
    world = World(size, seed=seed)
    return world.run(lambda comm, op: program(comm, world.values.leaves(comm.rank, 0, count), op))


def sendrecv(comm, out, got, shift=1):
    """The items that send to the right and receive from the left."""
    return comm.Isend(out, (comm.rank + shift) % comm.size), comm.Irecv(got, (comm.rank - shift) % comm.size)


def pair(good, bad, fault, size=2, match=None):
    """The good program passes and the bad one is found."""
    run(size, good)
    with pytest.raises(fault, match=match) as caught:
        run(size, bad)
    assert type(caught.value) is fault


# How messages meet.


def test_sends_that_wait_for_each_other_are_a_deadlock_and_the_circle_is_named():
    def good(comm, x, op):
        yield sendrecv(comm, x, comm.scratch(x))

    def bad(comm, x, op):
        send, receive = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
        yield comm.Isend(x, send)
        yield comm.Irecv(comm.scratch(x), receive)

    pair(good, bad, faults.Deadlock, 3, r"rank 0 -> rank 1 -> rank 2 -> rank 0(.*\n)*rank 1, round 0: send of 5")


def test_a_message_nobody_receives_is_found():
    def exchanges(comm, x, sends):
        for i in range(sends):
            if comm.rank == 0:
                yield comm.Isend(x, 1)
            elif i < 3:
                yield comm.Irecv(comm.scratch(x), 0)

    pair(
        lambda comm, x, op: exchanges(comm, x, 3),
        lambda comm, x, op: exchanges(comm, x, 4),
        faults.Unreceived,
        match="rank 0, round 3: send of 5 elements to rank 1 is never received: rank 1 has finished",
    )


def test_a_receive_from_a_rank_that_has_finished_is_found():
    def receives(comm, x, times):
        for _ in range(times if comm.rank else 1):
            yield comm.Irecv(comm.scratch(x), 0) if comm.rank else comm.Isend(x, 1)

    pair(
        lambda comm, x, op: receives(comm, x, 1),
        lambda comm, x, op: receives(comm, x, 2),
        faults.Unsent,
        match="rank 1, round 1: receive of 5 elements from rank 0 waits for ever: rank 0 has finished",
    )


@pytest.mark.parametrize("length", [4, 6, 0])
def test_a_message_of_another_length_than_its_receive_is_found(length):
    def lengths(comm, x, count):
        yield comm.Isend(x[:count], 1) if comm.rank == 0 else comm.Irecv(comm.scratch(x)[:5], 0)

    run(2, lambda comm, x, op: lengths(comm, x, 5), count=6)
    with pytest.raises(
        faults.WrongLength, match=f"(send of {length} elements.*receive of 5|receive of 5.*of {length})"
    ):
        run(2, lambda comm, x, op: lengths(comm, x, length), count=6)


def test_operands_of_other_lengths_are_found():
    def adds(comm, x, op, count):
        got = comm.scratch(x)
        yield sendrecv(comm, x, got)
        yield op(x[:4], x[:4], got[:count])

    pair(
        lambda comm, x, op: adds(comm, x, op, 4),
        lambda comm, x, op: adds(comm, x, op, 3),
        faults.WrongLength,
        match="rank 0, round 0: op of 4 elements: operands of 4, 4, 3",
    )


def test_messages_of_one_pair_of_ranks_match_in_order():
    got = {}

    def program(comm, x, op):
        got[comm.rank] = comm.scratch(x)
        a, b = got[comm.rank][:2], got[comm.rank][2:]
        if comm.rank == 0:
            yield comm.Isend(x[:2], 1), comm.Isend(x[2:], 1)
        else:
            yield comm.Irecv(a, 0), comm.Irecv(b, 0)

    run(2, program)
    assert [value.index for value in got[1]] == [0, 1, 2, 3, 4]


# What a round is made of.


@pytest.mark.parametrize("kind", ["send", "receive", "op", "finish", "copy"])
@pytest.mark.parametrize("last", [False, True])
def test_a_result_that_is_not_yielded_is_found(kind, last):
    def bad(comm, x, op):
        got = comm.scratch(x)
        {
            "send": lambda: comm.Isend(x, 1 - comm.rank),
            "receive": lambda: comm.Irecv(got, 1 - comm.rank),
            "op": lambda: op(x, x, got),
            "finish": lambda: op.finish(x),
            "copy": lambda: comm.copy(got, x),
        }[kind]()
        if not last:
            yield None

    with pytest.raises(faults.NotYielded, match=rf"rank 0, round 0: {kind} of 5 elements"):
        run(2, bad)


def test_a_yield_of_something_made_earlier_or_of_no_item_is_found():
    def again(comm, x, op):
        item = comm.copy(comm.scratch(x), x)
        yield item
        yield item

    def nonsense(comm, x, op):
        yield comm.copy(comm.scratch(x), x), "done"

    for bad in again, nonsense:
        with pytest.raises(faults.UnknownItem, match="rank 0, round 0"):
            run(2, bad)


# What a round may touch.


def test_two_receives_into_the_same_memory_overlap():
    def receives(comm, x, second):
        got = comm.scratch(x)
        if comm.rank == 0:
            yield comm.Irecv(got[:3], 1), comm.Irecv(got[second : second + 2], 1)
        else:
            yield comm.Isend(x[:3], 0), comm.Isend(x[3:], 0)

    pair(
        lambda comm, x, op: receives(comm, x, 3),
        lambda comm, x, op: receives(comm, x, 2),
        faults.Overlap,
        match="rank 0, round 0: receive of 3 elements from rank 1 and receive of 2 elements from rank 1 share memory",
    )


def test_a_receive_into_what_is_being_sent_overlaps():
    pair(
        lambda comm, x, op: iter_once(sendrecv(comm, x, comm.scratch(x))),
        lambda comm, x, op: iter_once(sendrecv(comm, x, x)),
        faults.Overlap,
        match="rank 0, round 0",
    )


def iter_once(items):
    yield items


def test_work_on_what_is_being_sent_or_received_overlaps():
    def works(comm, x, op, which):
        got = comm.scratch(x)
        out = {"beside": comm.scratch(x), "on the send": x, "on the receive": got}[which]
        spare = comm.scratch(x)
        yield comm.copy(spare, x)
        yield *sendrecv(comm, x, got), comm.copy(out, spare)

    run(2, lambda comm, x, op: works(comm, x, op, "beside"))
    for which in "on the send", "on the receive":
        with pytest.raises(faults.Overlap, match=r"rank 0, round 0: .* and .* share memory"):
            run(2, lambda comm, x, op, which=which: works(comm, x, op, which))


def test_sending_the_same_memory_twice_and_copying_it_onto_itself_are_legal():
    def program(comm, x, op):
        got = comm.scratch(x), comm.scratch(x)
        yield *sendrecv(comm, x, got[0]), *sendrecv(comm, x, got[1], 2), comm.copy(x, x), comm.copy(comm.scratch(x), x)

    run(3, program)


def test_out_may_be_an_operand_but_not_a_part_of_one():
    def adds(comm, x, op, start):
        got = comm.scratch(x)
        yield sendrecv(comm, x, got)
        yield op(x[start : start + 3], x[:3], got[:3])

    pair(
        lambda comm, x, op: adds(comm, x, op, 0),
        lambda comm, x, op: adds(comm, x, op, 1),
        faults.Overlap,
        match="rank 0, round 0: op of 3 elements: out shares a part of an operand's memory",
    )


def test_a_write_to_a_read_only_array_is_found():
    def adds(comm, x, op, writeable):
        got = comm.scratch(x)
        yield sendrecv(comm, x, got)
        x.flags.writeable = writeable
        yield op(x, x, got) if comm.rank == 0 else op(got, got, x)

    pair(
        lambda comm, x, op: adds(comm, x, op, True),
        lambda comm, x, op: adds(comm, x, op, False),
        faults.ReadOnly,
        match="rank 0, round 0: op of 5 elements: its array is only to be read",
    )


# Lanes.


def shift(comm, out, got, rounds=1):
    for _ in range(rounds):
        yield sendrecv(comm, out, got)


def test_lanes_that_share_no_memory_pass_and_their_rounds_add_up():
    def program(comm, x, op):
        a, b = comm.scratch(x), comm.scratch(x)
        yield *sendrecv(comm, x, comm.scratch(x)), shift(comm.lane(0), x, a, 3), shift(comm.lane(1), x, b, 2)
        yield op(a, x, b)

    assert [counts.rounds for counts in run(3, program)] == [6, 6, 6]


def test_lanes_that_share_memory_over_their_whole_lives_overlap():
    def two(comm, x, other):
        got = comm.scratch(x)
        yield shift(comm.lane(0), x, got), later(comm.lane(1), x, other if other is not None else got)

    def later(comm, x, got):  # lane 0 has long ended when lane 1 receives
        yield from shift(comm, x, comm.scratch(x), 5)
        yield from shift(comm, x, got)

    pair(
        lambda comm, x, op: two(comm, x, comm.scratch(x)),
        lambda comm, x, op: two(comm, x, None),
        faults.Overlap,
        match="rank 0, round 0: receive of 5 elements from rank 1 and receive of 5 elements from rank 1",
    )


def test_a_lane_overlaps_with_the_messages_and_the_work_of_its_parents_round():
    def beside(comm, x, message, work):
        got = comm.scratch(x)
        spare = comm.scratch(x)
        items = sendrecv(comm, x, got if message else spare)
        yield *items, comm.copy(got if work else comm.scratch(x), x), shift(comm.lane(0), x, got)

    run(2, lambda comm, x, op: beside(comm, x, False, False))
    for message, work in (True, False), (False, True):
        with pytest.raises(faults.Overlap, match="rank 0, round 0"):
            run(2, lambda comm, x, op, m=message, w=work: beside(comm, x, m, w))


def test_a_lane_of_a_lane_belongs_to_its_parents_life():
    def outer(comm, x, got, rounds):
        yield shift(comm.lane(3), x, got, rounds)

    def program(comm, x, op, same):
        a, b = comm.scratch(x), comm.scratch(x)
        yield outer(comm.lane(0), x, a, 2), outer(comm.lane(1), x, a if same else b, 2)

    pair(
        lambda comm, x, op: program(comm, x, op, False),
        lambda comm, x, op: program(comm, x, op, True),
        faults.Overlap,
        match="rank 0, round 0: receive of 5 elements",
    )


@pytest.mark.parametrize("nested", [False, True])
def test_a_lane_on_its_parents_comm_is_found(nested):
    def good(comm, x, op=None):
        yield shift(comm.lane(0), x, comm.scratch(x))

    def bad(comm, x, op=None):
        yield shift(comm, x, comm.scratch(x))

    def lane_of(inner):
        def program(comm, x, op):
            yield inner(comm.lane(2), x)

        return program

    where = "on lane 2" if nested else "on the root"
    programs = (lane_of(good), lane_of(bad)) if nested else (good, bad)
    pair(*programs, faults.WrongPath, match=f"rank 0 on a lane, round 0: send of 5 elements to rank 1 is made {where}")


def test_a_lane_that_changes_its_number_is_found():
    def bad(comm, x):
        yield from shift(comm.lane(0), x, comm.scratch(x))
        yield from shift(comm.lane(1), x, comm.scratch(x))

    def program(comm, x, op):
        yield bad(comm, x)

    with pytest.raises(
        faults.WrongPath, match="rank 0 on lane 0, round 1: send of 5 elements to rank 1 is made on lane 1"
    ):
        run(2, program)


def test_two_lanes_of_the_same_number_may_not_share_a_peer_and_direction():
    def program(comm, x, op, second):
        a, b = comm.scratch(x), comm.scratch(x)
        yield shift(comm.lane(0), x, a), shift(comm.lane(second), x, b)

    pair(
        lambda comm, x, op: program(comm, x, op, 1),
        lambda comm, x, op: program(comm, x, op, 0),
        faults.SharedLane,
        match="rank 0, round 0: messages from rank 0 to rank 1 on lane 0 of two lanes",
    )


def test_a_rounds_own_items_are_posted_before_its_lanes_take_their_first_step():
    done = []

    def lane(got, x):
        done.append(list(got) == list(x))
        yield None

    def program(comm, x, op):
        got = comm.scratch(x)
        yield lane(got, x), comm.copy(got, x)

    run(1, program)
    assert done == [True]


# What the elements are made of.


def added(comm, x, op, *, unset=False, twice=False, misplaced=False, finishes=1, again=False, early=False):
    """result = the sum of two ranks; each option plants one bug."""
    got, result, lower = comm.scratch(x), comm.scratch(x), comm.rank == 0
    if early:
        yield op.finish(x)
    if not unset:
        yield sendrecv(comm, x, got)
    if misplaced:
        yield op(result[:2], x[:2], got[1:3])
    yield op(result, x, got) if lower else op(result, got, x)
    if twice:
        yield op(result, result, got)
    for _ in range(finishes):
        yield op.finish(result)
    if again:
        yield op(result, x, result)


@pytest.mark.parametrize(
    ("bug", "fault", "text"),
    [
        ({"unset": True}, faults.UnsetData, "op of 5 elements: element 0 = x0 is combined with unset data"),
        ({"misplaced": True}, faults.WrongElement, "op of 2 elements: element 0 = x0 is combined with element 1 = x1"),
        ({"twice": True}, faults.DoubledContribution, "element 0 = x0 op x1 is combined with .*: rank 1 is in both"),
        ({"finishes": 2}, faults.FinishedTwice, "finish of 5 elements: element 0 = x0 op x1, finished"),
        ({"again": True}, faults.FinishedReduced, "element 0 = x0 is combined with element 0 = x0 op x1, finished"),
        ({"early": True}, faults.MissingContribution, r"element 0 = x0 is finished without ranks \[1\]"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_wrong_reduction_is_found(bug, fault, text):
    pair(added, lambda comm, x, op: added(comm, x, op, **bug), fault, match=f"rank 0, round 0: .*{text}")


@pytest.mark.parametrize("kind", ["send", "copy", "finish"])
def test_unset_data_may_not_be_sent_copied_or_finished(kind):
    def bad(comm, x, op):
        unset = comm.scratch(x)
        if kind == "send":
            yield sendrecv(comm, unset, x)
        yield comm.copy(x, unset) if kind == "copy" else op.finish(unset)

    with pytest.raises(faults.UnsetData, match=f"rank 0, round 0: {kind} of 5 elements"):
        run(2, bad)


def test_what_is_being_received_is_unset_until_it_has_come():
    def copies(comm, out, x):
        yield comm.copy(out, x)

    def bad(comm, x, op):
        if comm.rank == 0:
            yield comm.Irecv(x, 1), copies(comm.lane(0), comm.scratch(x), x)
        else:
            yield None
            yield comm.Isend(x, 0)

    with pytest.raises(faults.UnsetData, match="rank 0 on a lane, round 0: copy of 5 elements"):
        run(2, bad)


def test_partial_reductions_may_not_finish():
    def program(comm, x, op):
        got = comm.scratch(x)
        yield sendrecv(comm, x, got)
        yield op.partial(x, x, got) if comm.rank == 0 else op.partial(x, got, x)
        yield op.partial.finish(x)
        yield op.finish(x)

    run(2, program)


# Counts, schedules and real data.


def test_rounds_messages_and_bytes_are_counted_for_each_rank():
    def program(comm, x, op):
        got = comm.scratch(x)
        if comm.rank == 0:
            yield comm.Isend(x, 1), comm.Isend(x[:0], 1)
        else:
            yield comm.Irecv(got, 0), comm.Irecv(got[:0], 0)
            yield op(got, got, x)

    world = run(2, program)
    assert [tuple(vars(counts).values()) for counts in world] == [(1, 2, 40, 0, 2, 40), (1, 0, 0, 40, 2, 40)]


def test_the_busier_direction_of_each_round_is_counted():
    def program(comm, x, op):
        a, b = comm.scratch(x), comm.scratch(x)
        if comm.rank == 0:
            yield comm.Isend(x, 1), comm.Irecv(a[:1], 1), comm.Irecv(a[1:2], 1)
            yield comm.Irecv(b, 1)
        else:
            yield comm.Isend(x[:1], 0), comm.Isend(x[1:2], 0), comm.Irecv(a, 0)
            yield comm.Isend(x, 0)

    assert [(counts.port_messages, counts.port_bytes) for counts in run(2, program)] == [(3, 80), (3, 80)]


def test_who_never_heard_of_whom_is_known():
    def program(comm, op):
        token = world.values.unset(0)
        if comm.rank < 2:
            yield comm.Isend(token, comm.rank + 1)
        if comm.rank > 0:
            yield comm.Irecv(token, comm.rank - 1)

    world = World(3)
    world.run(program)
    # rank 1 sent before it received, so rank 2 heard of rank 1 alone; a send tells its sender nothing
    assert world.unheard() == [[1, 2], [2], [0]]


def real_allreduce(algorithm, x, op, seed=None):
    """The results of all ranks, one row each; x holds their sendbufs."""
    size, count = x.shape
    function, sent, results = FAMILIES["allreduce"][algorithm], x.copy(), np.empty_like(x)

    def program(comm, op):
        return function(comm, *prepare(function, (sent[comm.rank], results[comm.rank]), even(count, size)), op)

    World(size, Numbers(op, size), seed=seed).run(program)
    assert np.array_equal(sent, x)
    return results


each_allreduce = pytest.mark.parametrize("algorithm", FAMILIES["allreduce"])


@each_allreduce
@pytest.mark.parametrize("dtype", ["int16", "float32", "float64", "complex128"])
@pytest.mark.parametrize("size", [1, 2, 5, 8])
def test_real_data_gives_what_numpy_gives(algorithm, dtype, size):
    powers = np.random.default_rng(1).integers(0, 2, (size, 13))
    x = (1 << powers).astype(dtype)  # sums and products are exact in any order
    expected = {"sum": x.sum(0), "prod": x.prod(0)}
    if dtype != "complex128":
        expected |= {"max": x.max(0), "min": x.min(0)}
    if dtype != "int16":
        expected["avg"] = x.sum(0) / np.array(size, dtype)
    for op, result in expected.items():
        assert (real_allreduce(algorithm, x, op) == result).all(), op


@each_allreduce
def test_the_outcome_does_not_depend_on_the_order_of_the_ranks(algorithm):
    x = np.random.default_rng(1).standard_normal((7, 23)).astype("float32")
    by_turns = real_allreduce(algorithm, x, "sum")
    assert (by_turns == by_turns[0]).all()
    for seed in range(5):
        assert np.array_equal(by_turns, real_allreduce(algorithm, x, "sum", seed))


def test_scratch_of_real_data_starts_poisoned():
    def program(comm, op):
        scratches.append(comm.scratch(x))
        yield None

    for x in np.zeros(3), np.zeros(3, "int32"):
        scratches = []
        World(2, Numbers("sum", 2)).run(program)
        assert not (scratches[0] == x).any()
        assert not np.shares_memory(*scratches)


# The world itself.


def test_every_fault_has_a_planted_bug():
    texts = [Path(__file__).with_name(name).read_text() for name in ("test_world.py", "test_proof.py")]
    for fault in (fault for fault in faults.Fault.__subclasses__() if fault.__module__ == faults.__name__):
        assert any(f"faults.{fault.__name__}" in text for text in texts), fault


def test_the_world_needs_no_mpi():
    code = "import sys, mpicoll.world, mpicoll.cost; sys.exit('mpi4py' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[1], check=False).returncode == 0
