"""The rules of the language on real communicators: lanes, groups, events, in every form."""

import numpy as np
import pytest
from forms import FORMS

from mpicoll.algorithms import ring
from mpicoll.algorithms.cut import cut, even, split
from mpicoll.arrays import NumPyArrays
from mpicoll.progress.call import Job

pytestmark = pytest.mark.mpi


def perform(comm, form, program, x, result):
    """`program(comm, op)`, an algorithm's generator, run in the given form on a public communicator's own paths."""
    job = Job("planted", NumPyArrays, x, "sum", program, result)
    if form == "blocking":
        return comm._run(lambda *_: job, x, None)
    if form == "nonblocking":
        return comm._start(lambda *_: job).wait()
    plan = comm._plan(lambda *_: job)
    for _ in range(3):
        plan.start()
        plan.wait()
    plan.free()
    return result


def two_rings(comm, sendbuf, result, op):
    """result holds the reduction: each half of the buffer on a ring of its own, the two in opposite directions."""
    backwards = comm.group(list(reversed(range(comm.size))))
    lanes = []
    halves = zip(cut(sendbuf, 2), cut(result, 2), strict=True)
    for k, (group, (mine, out)) in enumerate(zip((comm, backwards), halves, strict=True)):
        counts = even(len(mine), comm.size)
        lanes.append(ring.allreduce(group.lane(k), split(mine, counts), split(out, counts), op))
    yield tuple(lanes)


def nested(comm, sendbuf, result, op):
    """result holds the reduction: one lane of two lanes, beside a message of the round's own and local work."""
    token, got = comm.scratch(sendbuf[:1]), comm.scratch(sendbuf[:1])
    kept = comm.scratch(sendbuf[:1])
    yield comm.copy(token, sendbuf[:1])
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    message = comm.Isend(token, right), comm.Irecv(got, left)
    yield *message, comm.copy(kept, sendbuf[:1]), two_rings(comm.lane(3), sendbuf, result, op)
    yield comm.copy(token, got)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("algorithm", [two_rings, nested])
def test_lanes_run_side_by_side_in_every_form(comm, form, algorithm):
    for count in (0, 1, comm.size, 1000):
        x = np.arange(count, dtype="float64") + comm.rank
        y = np.empty_like(x)
        perform(comm, form, lambda c, op, x=x, y=y: algorithm(c, x, y, op), x, y)
        assert (y == np.arange(count) * comm.size + sum(range(comm.size))).all()


@pytest.mark.parametrize("form", FORMS)
def test_groups_number_their_ranks_from_zero(comm, form):
    half = [rank for rank in range(comm.size) if rank % 2 == comm.rank % 2]

    def program(c, op):
        group = c.group(half)
        counts = even(len(x), group.size)
        return ring.allreduce(group, split(x, counts), split(y, counts), op)

    x, y = np.full(100, comm.rank), np.empty(100, int)
    perform(comm, form, program, x, y)
    assert (y == sum(half)).all()


class Event:
    """Done only at the third look."""

    def __init__(self):
        self.looks = 0

    def Test(self):
        self.looks += 1
        return self.looks > 2


@pytest.mark.parametrize("form", ["blocking", "nonblocking"])
def test_a_round_waits_for_events(comm, form):
    seen = []

    def program(c, op):
        events = [Event(), Event()]
        token, got = c.scratch(x), c.scratch(x)
        yield c.copy(token, x)
        messages = c.Isend(token, (c.rank + 1) % c.size), c.Irecv(got, (c.rank - 1) % c.size)
        yield *messages, *events
        seen.extend(event.looks for event in events)
        yield c.copy(y, got)

    x, y = np.array([comm.rank]), np.array([-1])
    perform(comm, form, program, x, y)
    assert y == (comm.rank - 1) % comm.size
    assert seen == [3, 3]


class Lazy(NumPyArrays):
    """Arrays whose copies are done only at the third look at their event."""

    events = []  # noqa: RUF012 one list on purpose

    @classmethod
    def copy(cls, out, array):
        NumPyArrays.copy(out, array)
        cls.events.append(Event())
        return cls.events[-1]

    @classmethod
    def ready(cls):
        return cls.copy(np.empty(1), np.empty(1))


@pytest.mark.parametrize("form", FORMS)
def test_local_work_under_way_is_waited_for_in_every_form(comm, form):
    def program(c, op):
        yield c.copy(y, x)

    x, y = np.array([comm.rank]), np.array([-1])
    Lazy.events.clear()
    job = Job("planted", Lazy, x, "sum", program, y)
    if form == "blocking":
        comm._run(lambda *_: job, x, None)
    elif form == "nonblocking":
        comm._start(lambda *_: job).wait()
    else:
        plan = comm._plan(lambda *_: job)
        Lazy.events.clear()
        for _ in range(2):
            plan.start()
            plan.wait()
        plan.free()
    assert [event.looks for event in Lazy.events] == [3] * len(Lazy.events)
    assert len(Lazy.events) == (4 if form == "persistent" else 2)  # ready and copy, each time


def test_lanes_go_two_deep_and_to_seven(comm):
    from mpicoll.progress.call import LiveCall

    call = LiveCall(comm._transport, Job("planted", NumPyArrays, np.zeros(1), "sum", None, None), 0)
    numbers = {call.comm.number} | {call.comm.lane(k).number for k in range(8)}
    numbers |= {call.comm.lane(k).lane(i).number for k in range(8) for i in range(8)}
    assert numbers == set(range(73))
    for wrong in (lambda: call.comm.lane(8), lambda: call.comm.lane(-1), lambda: call.comm.lane(0).lane(0).lane(0)):
        with pytest.raises(ValueError, match="lanes go from 0 to 7, at most two deep"):
            wrong()
