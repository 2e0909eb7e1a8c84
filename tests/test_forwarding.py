"""Algorithms that pass chunks of other ranks on, many in a message: what they send how far, and in how much memory."""

import collections

import pytest

from mpicoll.algorithms import bruck, pat, scatter_allgather, tree
from mpicoll.world import faults, prove
from mpicoll.world.world import Rank

SIZES = [1, 2, 3, 4, 5, 7, 8, 13, 16, 17, 32, 33]


@pytest.fixture
def scratch(monkeypatch):
    """scratch(...), with the arguments of prove: the most elements of scratch memory that a rank takes."""
    taken = collections.Counter()
    real = Rank.scratch

    def counted(self, like, count):
        taken[self.rank] += count
        return real(self, like, count)

    def most(*arguments, **options):
        taken.clear()
        prove(*arguments, **options)
        return max(taken.values(), default=0)

    monkeypatch.setattr(Rank, "scratch", counted)
    return most


@pytest.fixture
def sends(monkeypatch):
    """sends(...), with the arguments of prove: every message of rank 0 as (distance to the right, elements)."""
    sent = []
    real = Rank.isend

    def noted(self, array, peer, number):
        if self.rank == 0:
            sent.append((peer, len(array)))
        return real(self, array, peer, number)

    def of(*arguments, **options):
        sent.clear()
        prove(*arguments, **options)
        return list(sent)

    monkeypatch.setattr(Rank, "isend", noted)
    return of


def lg(p):
    return (p - 1).bit_length()


# PAT.


@pytest.mark.parametrize("aggregate", [1, 2, 4, 8, None])
def test_pat_takes_scratch_for_a_few_messages_however_many_ranks_there_are(scratch, aggregate):
    for p in SIZES:
        counts = [3] * p
        most = min(aggregate or p, max(1, 1 << lg(p) >> 1))  # chunks in a message
        bound = 3 * 2 * most if most > 1 else 0
        assert scratch("allgather", "pat", p, counts=counts, aggregate=aggregate) <= bound
        levels = lg(p) - (most.bit_length() - 1)
        bound = 3 * (most * (levels + 2) - 1 if most > 1 else lg(p))
        taken = scratch("reduce_scatter", "pat", p, counts=counts, aggregate=aggregate)
        assert taken <= bound
        assert taken == bound or p & (p - 1) or p == 1, "the bound is what a power of two needs"


def test_more_scratch_than_pat_may_take_is_found(scratch, plant):
    assert scratch("reduce_scatter", "pat", 16, 16, aggregate=1) == 4
    plant("reduce_scatter", pat, ("comm.scratch(*out)", "comm.scratch(*out, *out)"))
    assert scratch("reduce_scatter", "planted", 16, 16, aggregate=1) == 7


def test_pat_sends_the_fewest_chunks_to_the_farthest_ranks_and_bruck_the_most(sends):
    assert sends("allgather", "pat", 8, 8) == [(4, 1), (2, 2), (1, 4)]
    assert sends("reduce_scatter", "pat", 8, 8) == [(7, 4), (6, 2), (4, 1)]
    assert sends("allgather", "bruck", 8, 8) == [(7, 1), (6, 2), (4, 4)]
    one_by_one = sends("allgather", "pat", 8, 8, aggregate=1)
    assert one_by_one == [(4, 1), (2, 1), (1, 1), (1, 1), (2, 1), (1, 1), (1, 1)]
    assert sends("allgather", "pat", 8, 8, aggregate=2) == [(4, 1), (2, 2), (1, 2), (1, 2)]
    for p in SIZES:
        for aggregate in 1, 2, 3, 4, 8, None:
            messages = sends("allgather", "pat", p, p, aggregate=aggregate)
            assert max((chunks for _, chunks in messages), default=0) <= (aggregate or p)
            chunks = collections.Counter()
            for distance, count in messages:
                chunks[distance] += count
            assert chunks == collections.Counter(s & -s for s in range(1, p))


def test_pat_reduces_in_the_order_of_the_binomial_tree_however_many_chunks_share_a_message():
    def expressions(*arguments, **options):
        return [str(value) for result in prove(*arguments, **options).results for value in result]

    assert expressions("reduce_scatter", "pat", 4, 4)[1] == "element 1 = (x1 op x2) op (x3 op x0), finished"
    for p in SIZES[:-2]:
        tree_of_rank_0 = prove("reduce", "tree", p, 1).results[0]
        assert expressions("reduce_scatter", "pat", p, 1)[:1] == [str(value) for value in tree_of_rank_0]
        for aggregate in 1, 2, 4, 8:
            assert expressions("reduce_scatter", "pat", p, p, aggregate=aggregate) == expressions(
                "reduce_scatter", "pat", p, p
            )


def test_messages_of_pat_are_put_together_up_to_the_buffer_of_a_connection():
    assert pat.aggregation(None, 64, 8) == 32
    assert pat.aggregation(None, 64, 1 << 20) == 4
    assert pat.aggregation(None, 64, (1 << 20) + 1) == 2
    assert pat.aggregation(None, 64, 1 << 30) == 1
    assert pat.aggregation(100, 64, 1 << 30) == 32
    for aggregate in 0, -1:
        with pytest.raises(ValueError, match=f"pat: aggregate is {aggregate}; it must be at least 1"):
            prove("allgather", "pat", 4, 4, aggregate=aggregate)


# The others.


def test_bruck_the_tree_and_scatter_allgather_take_the_scratch_they_state(scratch):
    for p in SIZES:
        assert scratch("allgather", "bruck", p, 3 * p) <= 3 * (p - 1)
        assert scratch("alltoall", "bruck", p, 3 * p) <= 3 * p
        for root in {0, p // 2, p - 1}:
            assert scratch("broadcast", "scatter_allgather", p, 3 * p, root=root) == 0
            assert scratch("scatter", "tree", p, 3 * p, root=root) <= 3 * p // 2
            assert scratch("gather", "tree", p, 3 * p, root=root) <= 3 * p // 2


@pytest.mark.parametrize(
    ("collective", "module", "changes", "fault", "text"),
    [
        pytest.param(
            "allgather",
            bruck,
            [("min(have, size - have)", "have")],
            faults.Overlap,
            "share memory",
            id="bruck_ends_with_as_many_chunks_as_for_a_power_of_two",
        ),
        pytest.param(
            "allgather",
            bruck,
            [("comm.copy(view, part) for part, view in unpacked", "None for part, view in unpacked")],
            faults.UnsetData,
            "unset",
            id="what_goes_round_the_end_of_the_buffer_is_left_in_scratch",
        ),
        pytest.param(
            "alltoall",
            bruck,
            [("held[i] = homes[i]", "pass")],
            faults.WrongElement,
            "alltoall: result of rank 0, element 1 is element 1 = x2 instead of element 0",
            id="bruck_sends_its_own_chunks_in_every_round",
        ),
        pytest.param(
            "alltoall",
            bruck,
            [("result_chunks[(rank - i) % size] for", "result_chunks[(rank + i) % size] for")],
            faults.WrongElement,
            "instead of rank",
            id="bruck_without_the_last_rotation",
        ),
        pytest.param(
            "allgather",
            pat,
            [("reverse=True", "reverse=False")],
            faults.UnsetData,
            "unset",
            id="pat_sends_chunks_before_it_has_them",
        ),
        pytest.param(
            "reduce_scatter",
            pat,
            [("(s | (s - 1), -s), reverse=True", "(s.bit_count(), -s)")],
            faults.WrongElement,
            "is combined with",
            id="breadth_first_two_sums_are_in_one_home",
        ),
        pytest.param(
            "reduce_scatter",
            pat,
            [("            held[s] = homes[s]\n", "            pass\n")],
            faults.MissingContribution,
            "is finished without ranks",
            id="pat_passes_on_only_its_own_part",
        ),
        pytest.param(
            "broadcast",
            scatter_allgather,
            [("right) if right != root else None", "right)"), ("left) if rank != root else None", "left)")],
            faults.ReadOnly,
            "receive of 1 elements from rank",
            id="the_ring_is_closed_and_writes_to_the_root",
        ),
        pytest.param(
            "broadcast",
            scatter_allgather,
            [("range(size - 1)", "range(size - 2)")],
            faults.UnsetData,
            "broadcast: result of rank .* is unset",
            id="one_step_of_the_ring_too_few",
        ),
        pytest.param(
            "scatter",
            tree,
            [("yield comm.copy(result, held[vrank + shift])", "yield comm.copy(result, held[0])")],
            faults.WrongElement,
            "scatter: result of rank",
            id="the_root_keeps_the_first_chunk",
        ),
        pytest.param(
            "gather",
            tree,
            [("arriving), comm.copy(held[vrank + shift], sendbuf)", "arriving), None")],
            faults.UnsetData,
            "unset",
            id="a_rank_passes_on_all_but_its_own_chunk",
        ),
    ],
)
def test_a_planted_bug_is_found(plant, collective, module, changes, fault, text):
    options = {"aggregate": 1} if module is pat else {}
    root = 2 if collective in ("broadcast", "scatter", "gather") else 0
    p = 8 if module is pat else 6
    plant(collective, module)
    prove(collective, "planted", p, p, root=root, **options)
    plant(collective, module, *changes)
    with pytest.raises(fault, match=text) as caught:
        prove(collective, "planted", p, p, root=root, **options)
    assert type(caught.value) is fault
