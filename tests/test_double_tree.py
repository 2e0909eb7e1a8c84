"""The two trees: their shape, their colours, and the times that follow."""

import math

import pytest

from mpicoll import cost
from mpicoll.algorithms import double_tree
from mpicoll.algorithms.cut import even
from mpicoll.links import Link, uniform
from mpicoll.world import faults, prove
from mpicoll.world.clock import simulate

COLLECTIVES = ("broadcast", "reduce", "allreduce")
SIZES = range(1, 131)


def lg(p):
    return (p - 1).bit_length()


def test_for_even_p_each_rank_is_inner_in_exactly_one_tree_for_odd_p_one_is_in_both():
    for p in SIZES[1:]:
        inner = [{edge.parent for edge in double_tree.edges(p, False) if edge.tree == tree} for tree in range(2)]
        assert inner[0] | inner[1] == set(range(p))
        assert inner[0] & inner[1] == (set() if p % 2 == 0 else {p - 1})


@pytest.mark.parametrize("one_root", [False, True])
def test_both_are_trees_of_all_ranks_and_binary(one_root):
    for p in SIZES[1:]:
        for tree in range(2):
            above = {edge.child: edge.parent for edge in double_tree.edges(p, one_root) if edge.tree == tree}
            root = p - 1 if tree and not one_root else 0
            assert set(above) == set(range(p)) - {root}
            assert max(list(above.values()).count(parent) for parent in range(p)) <= 2
            for rank in range(p):
                way = [rank]
                while way[-1] != root:
                    way.append(above[way[-1]])
                assert len(way) - 1 <= lg(p) + 1


def test_no_port_has_two_messages_in_a_step_and_what_is_sent_has_arrived():
    for p in SIZES:
        for one_root in False, True:
            edges = double_tree.edges(p, one_root)
            for end in "parent", "child":
                ports = [(getattr(edge, end), edge.step % 2) for edge in edges]
                assert len(ports) == len(set(ports))
            arrived = {(edge.tree, edge.child): edge.step for edge in edges}
            assert all(arrived.get((edge.tree, edge.parent), -1) < edge.step for edge in edges)


def test_the_last_step_is_two_for_each_level():
    for p in SIZES[1:]:
        assert max(edge.step for edge in double_tree.edges(p, True)) <= 2 * lg(p)
        assert max(edge.step for edge in double_tree.edges(p, False)) <= 2 * lg(p) - 1


def test_a_broadcast_in_the_best_number_of_segments_takes_at_most_the_time_of_the_literature():
    alpha, beta, n = 1000.0, 1.0, 1 << 20
    for p in SIZES[1:]:
        best = min(
            cost.predict("broadcast", "double_tree", even(n, p), 1, alpha, beta, 0, segments=s) for s in SEGMENTS
        )
        assert best <= n * beta + 2 * lg(p) * alpha + math.sqrt(8 * alpha * beta * n * lg(p))


SEGMENTS = [*range(1, 20), *range(20, 100, 5)]


def test_the_simulated_time_is_at_most_the_predicted_one_and_close_to_it():
    for collective in COLLECTIVES:
        for p in 2, 3, 5, 8, 13, 16:
            for count, segments in (240 * p, 1), (240 * p, 4), (37, 3):
                for gamma in 0, 3:
                    arguments = collective, "double_tree", even(count, p), 8
                    seconds = simulate(*arguments, uniform(Link("link", 1000, 7), p), gamma, segments=segments).seconds
                    predicted = cost.predict(*arguments, 1000, 7, gamma, segments=segments)
                    assert seconds <= predicted
                    assert seconds >= 0.8 * predicted or gamma or p == 2  # of two ranks none has to wait for its turn


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_any_number_of_segments_is_proven_and_costs_what_the_closed_form_says(collective):
    for size in range(1, 9):
        for segments in 1, 2, 5:
            for count in 0, 1, 7, 24:
                for root in (0,) if collective == "allreduce" else {0, size // 2, size - 1}:
                    proof = prove(
                        collective, "double_tree", size, count, root=root, in_place=count % 2 == 1, segments=segments
                    )
                    for rank, counts in enumerate(proof.counts):
                        expected = cost.of(
                            collective, "double_tree", rank, even(count, size), 8, root, segments=segments
                        )
                        assert cost.Cost(**vars(counts)) == expected


def test_no_rank_sends_or_receives_more_than_the_buffer_once():
    for p in range(2, 34):
        for rank in range(p):
            assert cost.of("broadcast", "double_tree", rank, [6] * p, 8, segments=4).sent <= 48 * p
            assert cost.of("allreduce", "double_tree", rank, [6] * p, 8, segments=4).sent <= 2 * 48 * p


def leaves(expression):
    return [expression] if isinstance(expression, int) else [leaf for part in expression for leaf in leaves(part)]


def test_contributions_are_reduced_in_the_order_of_the_ranks():
    for size in range(1, 20):
        for value in prove("allreduce", "double_tree", size, 6).results[size // 2]:
            assert leaves(value.expression) == list(range(size))
        for value in prove("reduce", "double_tree", size, 6, root=size // 2).results[size // 2]:
            assert leaves(value.expression) == [(size // 2 + vrank) % size for vrank in range(size)]


def test_less_than_a_segment_is_refused():
    for collective in COLLECTIVES:
        with pytest.raises(ValueError, match="double_tree: segments is 0; it must be at least 1"):
            prove(collective, "double_tree", 3, 5, segments=0)


@pytest.mark.parametrize(
    ("collective", "changes", "fault", "text"),
    [
        pytest.param(
            "broadcast",
            [("sorted((edge.step + 2 * s, edge, s)", "sorted((2 * s + (edge.parent == vrank), edge, s)")],
            faults.Deadlock,
            r"who waits for whom: rank \d -> rank \d",
            id="a_rank_waits_for_both_its_parents_before_it_sends",
        ),
        pytest.param(
            "reduce",
            [("return earliest + (earliest + colours[link]) % 2", "return earliest + earliest % 2")],
            faults.Overlap,
            r"rank \d, round \d: receive of 2 elements from rank . and receive of 2 elements from rank . share memory",
            id="all_edges_have_one_colour",
        ),
        pytest.param(
            "broadcast",
            [("one_root and size > 1", "one_root and size > 99")],
            faults.UnsetData,
            r"rank 6, round 0: send of 2 elements to rank \d: 2 of 2 elements are unset",
            id="the_root_is_a_leaf_of_the_second_tree",
        ),
        pytest.param(
            "reduce",
            [("got[: len(mine[s])]", "into[edge.tree][s]")],
            faults.Overlap,
            r"rank \d, round \d: receive of 2 elements from rank \d and send of 2 elements to rank \d share memory",
            id="a_segment_arrives_where_the_one_before_is_being_sent",
        ),
        pytest.param(
            "allreduce",
            [("zip((0, comm.size - 1), cut", "zip((0, 0), cut")],
            faults.UnsetData,
            r"rank 0, round \d+: finish of 4 elements: unset data is finished",
            id="one_rank_finishes_both_halves",
        ),
    ],
)
def test_a_planted_bug_is_found(plant, collective, changes, fault, text):
    plant(collective, double_tree)
    prove(collective, "planted", 7, 8, segments=2)
    plant(collective, double_tree, *changes)
    with pytest.raises(fault, match=text) as caught:
        prove(collective, "planted", 7, 8, segments=2)
    assert type(caught.value) is fault
