"""The reducer averages gradients whatever the order in which they become ready, and names what is wrong."""

import numpy as np
import pytest
from fake_comm import one_rank, ranks

from mpicoll.training.buckets import MIB, assign
from mpicoll.training.exchanges import launch
from mpicoll.training.layers import Parameter
from mpicoll.training.reducer import Reducer


def parameters(lengths=(3, 3, 3, 3, 3, 3), dtype=np.float64):
    return [Parameter(f"p{i}", np.full(n, float(i), dtype)) for i, n in enumerate(lengths)]


TINY = 6 * 8 / MIB  # two parameters of three float64 fill a bucket


def check_random_orders(kind):
    """Three ranks mark in different random orders, several steps; every gradient is the mean over the ranks."""

    def program(comm):
        ps = parameters()
        reducer, rng = kind(comm, ps, bucket_cap_mb=TINY, first_bucket_mb=TINY), np.random.default_rng(comm.rank)
        for step in range(20):
            reducer.zero_grad()
            for i in rng.permutation(len(ps)):
                ps[i].grad += 100 * step + 10 * i + comm.rank
                reducer.mark_ready(ps[i])
            reducer.finish()
            for i, p in enumerate(ps):
                np.testing.assert_allclose(p.grad, 100 * step + 10 * i + 1)

    ranks(3, program)


def test_gradients_marked_in_different_random_orders_are_averaged():
    check_random_orders(Reducer)


def test_the_check_finds_a_reducer_that_launches_in_ready_order():
    class Impatient(Reducer):
        def _launch(self):
            for bucket in self.buckets:
                if not bucket.pending and bucket.handle is None:
                    launch(self.exchange, self.comm, bucket)

    with pytest.raises(AssertionError):
        check_random_orders(Impatient)


def names(lists):
    return [[p.name for p in part] for part in lists]


def test_buckets_are_in_reverse_order_and_closed_before_they_exceed_their_cap():
    ps = parameters((3, 3, 1, 2, 3, 3))
    assert names(assign(ps, TINY, TINY)) == [["p5", "p4"], ["p3", "p2", "p1"], ["p0"]]
    assert names(assign(ps, TINY, TINY / 2)) == [["p5"], ["p4", "p3", "p2"], ["p1", "p0"]]
    assert names(assign(ps, TINY / 2, TINY)) == [["p5"], ["p4"], ["p3", "p2"], ["p1"], ["p0"]]
    assert names(assign(ps)) == [["p5", "p4", "p3", "p2", "p1", "p0"]]
    assert assign([]) == []


def test_a_parameter_above_the_cap_has_a_bucket_of_its_own():
    assert names(assign(parameters((1, 1, 100, 1, 1)), TINY, TINY)) == [["p4", "p3"], ["p2"], ["p1", "p0"]]


def test_a_bucket_has_one_dtype():
    ps = [*parameters((1, 1)), *(Parameter(n, np.zeros(1, np.float32)) for n in "ab"), Parameter("c", np.zeros(1))]
    assert names(assign(ps)) == [["c"], ["b", "a"], ["p1", "p0"]]
    reducer = Reducer(one_rank(), ps)
    for p in ps:
        assert p.grad.dtype == p.data.dtype
        p.grad += 1
        reducer.mark_ready(p)
    reducer.finish()
    assert all((p.grad == 1).all() for p in ps)


def test_gradients_are_zero_views_into_their_bucket_in_the_parameters_shape():
    p, q = Parameter("p", np.ones((2, 3))), Parameter("q", np.ones(()))
    p.grad.fill(5)
    reducer = Reducer(one_rank(), [p, q])
    assert not reducer.buckets[0].flat.any()
    p.grad[1, 2] = 7
    q.grad += 8
    assert reducer.buckets[0].flat.tolist() == [8, 0, 0, 0, 0, 0, 7]
    reducer.zero_grad()
    assert not p.grad.any()
    assert not q.grad.any()


def test_a_bucket_is_launched_when_full_and_not_before_those_before_it():
    comm = one_rank()
    ps = parameters((1, 2, 3))
    reducer = Reducer(comm, ps, bucket_cap_mb=3 * 8 / MIB, first_bucket_mb=3 * 8 / MIB)
    assert [len(b.flat) for b in reducer.buckets] == [3, 3]
    reducer.mark_ready(ps[0])
    reducer.mark_ready(ps[1])
    assert (reducer.next_bucket, comm.launched) == (0, [])  # bucket 1 is full and waits for bucket 0
    assert [b.pending for b in reducer.buckets] == [1, 0]
    reducer.mark_ready(ps[2])
    assert reducer.next_bucket == 2
    reducer.finish()
    assert reducer.next_bucket == 0
    assert [b.pending for b in reducer.buckets] == [1, 2]
    assert reducer.bytes_sent == 6 * 8


def test_without_overlap_everything_is_launched_by_finish():
    comm, ps = one_rank(), parameters()
    reducer = Reducer(comm, ps, TINY, TINY, overlap=False)
    for p in ps:
        reducer.mark_ready(p)
    assert comm.launched == []
    reducer.finish()
    assert comm.launched == [6, 6, 6]
    assert 0 < reducer.communication_s <= reducer.exposed_s


def test_no_sync_accumulates_and_sends_nothing():
    def program(comm):
        ps = parameters()
        reducer = Reducer(comm, ps, TINY, TINY)
        with reducer.no_sync():
            for p in ps:
                p.grad += 1
                reducer.mark_ready(p)
        assert comm.launched == []
        for p in ps:
            p.grad += comm.rank
            reducer.mark_ready(p)
        reducer.finish()
        assert all((p.grad == 1.5).all() for p in ps)

    ranks(2, program)


def leave_by_exception(reducer):
    with reducer.no_sync():
        raise KeyError("user")


def test_no_sync_is_over_after_an_exception():
    comm, ps = one_rank(), parameters()
    reducer = Reducer(comm, ps)
    with pytest.raises(KeyError, match="user"):
        leave_by_exception(reducer)
    for p in ps:
        reducer.mark_ready(p)
    reducer.finish()
    assert comm.launched == [18]


def test_nested_no_sync_ends_with_the_outer_one():
    comm, ps = one_rank(), parameters((3,))
    reducer = Reducer(comm, ps)
    with reducer.no_sync():
        with reducer.no_sync():
            pass
        reducer.mark_ready(ps[0])
    assert comm.launched == []


def test_finish_inside_no_sync_is_an_error_that_says_so():
    reducer = Reducer(one_rank(), parameters())
    with reducer.no_sync(), pytest.raises(RuntimeError, match="inside no_sync"):
        reducer.finish()


def test_a_gradient_marked_twice_is_named():
    ps = parameters()
    reducer = Reducer(one_rank(), ps)
    reducer.mark_ready(ps[2])
    with pytest.raises(RuntimeError, match="p2 was marked ready twice"):
        reducer.mark_ready(ps[2])


def test_missing_gradients_are_named_and_counted_and_the_step_can_go_on():
    ps = parameters()
    reducer = Reducer(one_rank(), ps, TINY, TINY)
    for p in ps[2:5]:
        reducer.mark_ready(p)
    expected = (
        r"3 of 6 gradients were not marked ready: p5, p1, p0 \(bucket 0 waits for 1 of 2, bucket 2 waits for 2 of 2\)"
    )
    with pytest.raises(RuntimeError, match=expected):
        reducer.finish()
    for p in (ps[0], ps[1], ps[5]):
        reducer.mark_ready(p)
    reducer.finish()


def test_a_rebound_gradient_is_named_even_inside_no_sync():
    ps = parameters()
    reducer = Reducer(one_rank(), ps)
    ps[1].grad = ps[1].grad + 1
    with pytest.raises(RuntimeError, match="gradient of p1 is no longer the view"):
        reducer.mark_ready(ps[1])
    with reducer.no_sync(), pytest.raises(RuntimeError, match="gradient of p1"):
        reducer.mark_ready(ps[1])


def test_a_strange_parameter_is_named():
    reducer = Reducer(one_rank(), parameters())
    with pytest.raises(ValueError, match="'stranger'"):
        reducer.mark_ready(Parameter("stranger", np.zeros(1)))


def test_names_must_be_unique():
    with pytest.raises(ValueError, match="more than once: p0"):
        Reducer(one_rank(), [*parameters((1,)), *parameters((1,))])


@pytest.mark.parametrize("caps", [(0, 1), (25, -1)])
def test_bucket_sizes_must_be_positive(caps):
    with pytest.raises(ValueError, match="positive"):
        Reducer(one_rank(), parameters(), *caps)


def test_a_model_without_parameters_has_nothing_to_do():
    comm = one_rank()
    reducer = Reducer(comm, [])
    reducer.zero_grad()
    reducer.finish()
    assert (reducer.buckets, reducer.bytes_sent, comm.launched) == ([], 0, [])


def test_every_rank_starts_with_rank_0s_parameters():
    def program(comm):
        ps = parameters()
        for p in ps:
            p.data += 100 * comm.rank
        Reducer(comm, ps)
        return [p.data.tolist() for p in ps]

    assert ranks(3, program) == [[p.data.tolist() for p in parameters()]] * 3
