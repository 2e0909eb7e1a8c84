"""What the reducer does on request: unused parameters, finite checks, ready order, other exchanges."""

import numpy as np
import pytest
from fake_comm import one_rank, ranks

from mpicoll.training import finite, usage
from mpicoll.training.buckets import MIB, assign
from mpicoll.training.exchanges import Nothing
from mpicoll.training.layers import Parameter
from mpicoll.training.reducer import Reducer

TINY = 6 * 8 / MIB  # two parameters of three float64 fill a bucket


def parameters(lengths=(3, 3, 3, 3, 3, 3), dtype=np.float64):
    return [Parameter(f"p{i}", np.full(n, float(i), dtype)) for i, n in enumerate(lengths)]


def names(lists):
    return [[p.name for p in part] for part in lists]


def mark_all(reducer, ps):
    for p in reversed(ps):
        reducer.mark_ready(p)
    reducer.finish()


# the last bucket


def test_what_fits_into_the_last_bucket_is_cut_off_the_last_list():
    one = 8 / MIB
    ps = parameters((1, 2, 3, 4))
    assert names(assign(ps, 25, 25, 1)) == [["p3", "p2", "p1", "p0"]]  # all of it fits
    assert names(assign(ps, 25, 25, 3 * one)) == [["p3", "p2"], ["p1", "p0"]]
    assert names(assign(ps, 25, 25, 2 * one)) == [["p3", "p2", "p1"], ["p0"]]
    assert names(assign(ps, 25, 25, one / 2)) == [["p3", "p2", "p1", "p0"]]  # nothing fits
    assert names(assign(ps, 25, 4 * one, 5 * one)) == [["p3"], ["p2"], ["p1", "p0"]]


# unused parameters


def contribution(rank, step, i):
    return 100 * step + 10 * i + rank


def check_unused(step_zero=True):
    """Three ranks use other parameters in each step; the old gradients of 0.1 have bits that averaging would change."""

    def program(comm):
        ps = parameters()
        reducer = Reducer(comm, ps, TINY, TINY, find_unused_parameters=True)
        uses = np.random.default_rng(7).random((10, 3, len(ps))) < 0.4  # the same table on all ranks
        assert (~uses.any(axis=1)).any()
        assert uses.all(axis=1).any()
        for step, used in enumerate(uses):
            for p in ps:
                p.grad[...] = 0.1
            mine = [i for i in range(len(ps)) if used[comm.rank, i]]
            reducer.report_used([ps[i] for i in mine])
            for i in np.random.default_rng([step, comm.rank]).permutation(mine):
                ps[i].grad += contribution(comm.rank, step, i)
                reducer.mark_ready(ps[i])
            reducer.finish()
            for i, p in enumerate(ps):
                if used[:, i].any():
                    expected = sum(contribution(r, step, i) for r in range(3) if used[r, i]) / 3 + 0.1
                    np.testing.assert_allclose(p.grad, expected, rtol=1e-14)
                else:
                    assert (p.grad == 0.1).all()
            assert reducer.unused == [p for i, p in enumerate(ps) if not used[:, i].any()]

    ranks(3, program)


def test_ranks_that_use_other_parameters_never_wait_and_what_nobody_used_keeps_its_gradient():
    check_unused()


def test_the_check_finds_old_gradients_that_are_averaged(monkeypatch):
    right = usage.Usage.report

    def planted(self, used):
        idle = right(self, used)
        self.old = {p: p.grad for p in self.old}  # no copy
        return idle

    monkeypatch.setattr(usage.Usage, "report", planted)
    with pytest.raises(AssertionError):
        check_unused()


def test_what_an_earlier_micro_batch_used_takes_part_in_the_step():
    def program(comm):
        ps = parameters((1, 1, 1))
        reducer = Reducer(comm, ps, find_unused_parameters=True)
        with reducer.no_sync():
            reducer.report_used(ps[:1] if comm.rank else [])
            if comm.rank:
                ps[0].grad += 4
                reducer.mark_ready(ps[0])
        reducer.report_used(ps[1:2])
        ps[1].grad += 2 * comm.rank
        reducer.mark_ready(ps[1])
        reducer.finish()
        return [p.grad.tolist() for p in ps], reducer.unused == ps[2:]

    assert ranks(2, program) == [([[2.0], [1.0], [0.0]], True)] * 2


def test_a_step_in_which_nothing_took_part_ends():
    ps = parameters()
    reducer = Reducer(one_rank(), ps, find_unused_parameters=True)
    reducer.report_used([])
    reducer.finish()
    assert reducer.unused == ps
    reducer.report_used(ps)
    mark_all(reducer, ps)
    assert reducer.unused == []


def test_wrong_reports_are_named():
    ps = parameters()
    with pytest.raises(RuntimeError, match="report_used: construct the reducer with find_unused_parameters=True"):
        Reducer(one_rank(), ps).report_used(ps)
    reducer = Reducer(one_rank(), ps, find_unused_parameters=True)
    with pytest.raises(ValueError, match=r"report_used: .*'stranger'"):
        reducer.report_used([Parameter("stranger", np.zeros(1))])
    with pytest.raises(RuntimeError, match=r"6 of 6 gradients were not marked ready.*, report_used says so"):
        reducer.finish()
    reducer.report_used(ps[1:])
    with pytest.raises(RuntimeError, match="p0 takes no part in this step: report_used"):
        reducer.mark_ready(ps[0])
    with pytest.raises(RuntimeError, match="1 gradients are already ready"):
        reducer.report_used(ps)
    mark_all(reducer, ps[1:])
    with pytest.raises(RuntimeError, match=r"were not marked ready.*pass find_unused_parameters=True"):
        Reducer(one_rank(), ps).finish()


# finite


def finite_steps(poison):
    """The message on every rank of a step in which poison(rank, gradients) went wrong; the step after it is right."""

    @np.errstate(all="ignore")
    def program(comm):
        ps = parameters((2, 3, 1), np.float32)
        reducer = Reducer(comm, ps, 12 / MIB, 12 / MIB, check_finite=True)
        for p in ps:
            p.grad += comm.rank
        poison(comm.rank, ps)
        message = None
        try:
            mark_all(reducer, ps)
        except FloatingPointError as error:
            message = str(error)
        reducer.zero_grad()
        for p in ps:
            p.grad += comm.rank
        mark_all(reducer, ps)
        assert all((p.grad == 1).all() for p in ps)
        return message

    first, *others = ranks(3, program)
    assert others == [first] * 2
    return first


def one_bad(rank, ps):
    if rank == 1:
        ps[1].grad[2] = np.nan


def test_a_gradient_that_is_not_finite_is_named_with_its_rank_on_all_ranks():
    assert finite_steps(lambda rank, ps: None) is None
    assert finite_steps(one_bad) == "finish: gradients are not finite: p1 on rank(s) 1"

    def two(rank, ps):
        if rank:
            ps[0].grad[0] = (-1) ** rank * np.inf

    assert finite_steps(two) == "finish: gradients are not finite: p0 on rank(s) 1, 2"


def test_an_average_that_overflows_is_named():
    def large(rank, ps):
        ps[2].grad[0] = 3e38

    assert "finite, but these averages are not finite: p2 on rank(s) 0, 1, 2" in finite_steps(large)


def test_many_are_counted():
    def all_bad(rank, ps):
        for p in ps:
            p.grad[...] = np.nan

    assert finite_steps(all_bad).count("rank(s)") == 3
    ps = parameters((1,) * 7)
    reducer = Reducer(one_rank(), ps, check_finite=True)
    all_bad(0, ps)
    with pytest.raises(FloatingPointError, match=r"p6 on .* and 4 more parameters"):
        mark_all(reducer, ps)


def test_the_check_finds_a_look_that_comes_too_late(monkeypatch):
    monkeypatch.setattr(
        finite.FiniteCheck, "look", lambda self, bucket: self.before.extend([np.True_] * len(bucket.views))
    )
    assert finite_steps(one_bad) != "finish: gradients are not finite: p1 on rank(s) 1"


# ready order


def test_buckets_are_made_again_once_by_rank_0s_order():
    orders = {0: [3, 0, 4, 1, 5, 2], 1: [0, 1, 2, 3, 4, 5], 2: [5, 4, 3, 2, 1, 0]}

    def program(comm):
        ps = parameters()
        reducer, layouts = Reducer(comm, ps, TINY, TINY, rebuild_buckets=True), []
        for step in range(3):
            layouts.append([[p.name for p, _ in bucket.views] for bucket in reducer.buckets])
            reducer.zero_grad()
            for i in orders[(comm.rank + step) % 3]:
                ps[i].grad += step + 10 * i + comm.rank
                reducer.mark_ready(ps[i])
            reducer.finish()
            assert [p.grad.tolist() for p in ps] == [[step + 10 * i + 1] * 3 for i in range(6)]
        return layouts

    first = [["p5", "p4"], ["p3", "p2"], ["p1", "p0"]]
    measured = [["p3", "p0"], ["p4", "p1"], ["p5", "p2"]]
    assert ranks(3, program) == [[first, measured, measured]] * 3


def test_a_finite_check_comes_before_the_rebuilding():
    ps = parameters((1, 1, 1))
    reducer = Reducer(one_rank(), ps, 8 / MIB, 8 / MIB, rebuild_buckets=True, check_finite=True)
    ps[2].grad[0] = np.nan
    for p in ps:
        reducer.mark_ready(p)
    with pytest.raises(FloatingPointError, match="not finite: p2 on"):
        reducer.finish()


# exchanges


def test_nothing_is_sent_in_the_mode_that_measures_computation():
    def program(comm):
        ps = parameters()
        reducer = Reducer(comm, ps, TINY, TINY, exchange=Nothing())
        before = comm.started
        for p in ps:
            p.grad += comm.rank
        mark_all(reducer, ps)
        assert comm.started == before
        assert reducer.bytes_sent == reducer.formula_bytes() == reducer.communication_s == 0
        assert all((p.grad == comm.rank).all() for p in ps)
        mark_all(reducer, ps)  # and again

    ranks(2, program)


def test_the_steps_of_exchanges_start_in_one_order_on_all_ranks():
    class Twice:
        name = "twice"

        def __call__(self, comm, bucket):
            yield comm.iallreduce(bucket.flat, bucket.flat, op="avg")
            bucket.flat += comm.rank
            yield comm.iallreduce(bucket.flat, bucket.flat, op="avg")
            bucket.flat *= 2

    def program(comm):
        ps = parameters((1, 2, 3, 4))
        reducer = Reducer(comm, ps, 8 / MIB, 8 / MIB, exchange=Twice())
        for step in range(3):
            reducer.zero_grad()
            for i in np.random.default_rng([step, comm.rank]).permutation(4):
                ps[i].grad += comm.rank + i
                reducer.mark_ready(ps[i])
            reducer.finish()
            assert [set(p.grad.tolist()) for p in ps] == [{2.0 * (1 + i + 1)} for i in range(4)]
        assert comm.launched == [4, 3, 2, 1] * 6

    ranks(3, program)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"algorithm": "ring", "exchange": Nothing()}, "algorithm='ring' is of the all-reduce, .*'nothing' replaces"),
        ({"find_unused_parameters": True, "rebuild_buckets": True}, "pass only one of them"),
        ({"last_bucket_mb": 0}, "positive: .*last_bucket_mb=0"),
    ],
)
def test_options_that_make_no_sense_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        Reducer(one_rank(), parameters(), **options)
