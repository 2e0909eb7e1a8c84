"""Two levels, for nodes of any shape: proven, costed, and what crosses between nodes counted."""

from collections import Counter
from fractions import Fraction

import pytest

from mpicoll import cost
from mpicoll.algorithms import hierarchical
from mpicoll.algorithms.cut import even
from mpicoll.links import Link, uniform
from mpicoll.world import faults, prove
from mpicoll.world.clock import Transfer, simulate

COLLECTIVES = ("broadcast", "allreduce", "reduce_scatter", "allgather")
NODES = {
    "equal": (0, 0, 0, 1, 1, 1),
    "interleaved": (0, 1, 0, 1, 0, 1),
    "one_rank_each": (4, 2, 7),
    "unequal": (0, 0, 1, 1, 1, 1, 1),
    "one_alone": (0, 1, 0, 0, 0),
    "mixed": (1, 0, 2, 2, 0, 1, 2, 0, 2),
}
each_collective = pytest.mark.parametrize("collective", COLLECTIVES)
each_shape = pytest.mark.parametrize("nodes", NODES.values(), ids=NODES)


def roots(collective, size):
    return {0, size // 2, size - 1} if collective == "broadcast" else {0}


@each_shape
@each_collective
def test_nodes_of_any_shape_are_proven_and_cost_what_the_closed_form_says(collective, nodes):
    size = len(nodes)
    for counts in [0] * size, even(1, size), [4] * size, [5 * rank % 7 for rank in range(size)]:
        for parts in 1, 2, 5:
            for root in roots(collective, size):
                options = {"root": root, "nodes": nodes, "parts": parts}
                proof = prove(collective, "hierarchical", size, counts=counts, in_place=parts != 2, **options)
                for rank, counted in enumerate(proof.counts):
                    expected = cost.of(collective, "hierarchical", rank, counts, 8, **options)
                    assert cost.Cost(**vars(counted)) == expected


def crossed(collective, nodes, count, **options):
    """Bytes that each rank sends to other nodes, with so many elements of 8 bytes in each chunk."""
    size = len(nodes)
    links = uniform(Link("link", 1, 1), size)
    timing = simulate(collective, "hierarchical", [count] * size, 8, links, nodes=nodes, trace=True, **options)
    sent = Counter(dict.fromkeys(range(size), 0))
    for event in timing.trace:
        if isinstance(event, Transfer) and nodes[event.source] != nodes[event.dest]:
            sent[event.source] += event.nbytes
    return sent


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize(("q", "m"), [(2, 3), (3, 2), (4, 4), (1, 5), (5, 1)])
def test_a_rank_crosses_with_its_rails_share_of_what_must_cross(q, m, parts):
    for nodes in [rank // m for rank in range(q * m)], [rank % q for rank in range(q * m)]:
        n = 8 * 12 * q * m
        for collective, times in ("allreduce", 2), ("reduce_scatter", 1), ("allgather", 1):
            sent = crossed(collective, nodes, 12, parts=parts)
            assert set(sent.values()) == {Fraction(times * (q - 1) * n, q * m)}
        sent = crossed("broadcast", nodes, 12, parts=parts, root=1 % m)
        assert sum(sent.values()) == (q - 1) * n
        assert set(sent.values()) <= {0, n // m}


def test_of_unequal_nodes_as_many_ranks_cross_as_the_smallest_has():
    for nodes in NODES["unequal"], NODES["mixed"]:
        rails = min(Counter(nodes).values())
        for collective in COLLECTIVES:
            sent = crossed(collective, nodes, 6)
            crossing = Counter(nodes[rank] for rank in sent if sent[rank])
            assert set(crossing.values()) == {rails}
            assert sum(sent.values()) >= (len(crossing) - 1) * (1 if collective == "broadcast" else 6)


# Of q nodes with m ranks each and n bytes: how often alpha, beta and gamma; the ring reduces in 2 segments.
TIMES = {
    "allreduce": lambda q, m, n: (3 * (m - 1 + q - 1), 2 * twice(q, m, n), twice(q, m, n)),
    "reduce_scatter": lambda q, m, n: (2 * (m - 1 + q - 1), twice(q, m, n), twice(q, m, n)),
    "allgather": lambda q, m, n: (m - 1 + q - 1, twice(q, m, n), 0),
    "broadcast": lambda q, m, n: (
        m - 1 + (q - 1) + (m - 1) * (q > 1),
        (m - 1) * n + (q - 1) * n // m + (m - 1) * n // m * (q > 1),
        0,
    ),
}


def twice(q, m, n):
    """A ring in the node, and one across."""
    return (m - 1) * n // m + (q - 1) * n // (q * m)


@each_collective
def test_predicted_times_of_equal_nodes_are_the_closed_forms(collective):
    for q, m in (1, 4), (4, 1), (2, 3), (3, 4), (8, 8):
        n = 8 * 2 * q * m
        nodes = [rank // m for rank in range(q * m)]
        alphas, betas, gammas = TIMES[collective](q, m, n)
        for parts in 1, 2:
            predicted = cost.predict(
                collective, "hierarchical", [2] * (q * m), 8, 10**9, 10**4, 1, nodes=nodes, parts=parts
            )
            assert predicted == parts * alphas * 10**9 + betas * 10**4 + gammas


@each_shape
@each_collective
def test_the_simulated_time_of_one_part_is_at_most_the_predicted_one(collective, nodes):
    size = len(nodes)
    for counts in [4] * size, [5 * rank % 7 for rank in range(size)]:
        for root in roots(collective, size):
            for gamma in 0, 3:
                arguments = collective, "hierarchical", counts, 8
                predicted = cost.predict(*arguments, 1000, 7, gamma, root, nodes=nodes)
                links = uniform(Link("link", 1000, 7), size)
                assert simulate(*arguments, links, gamma, root, nodes=nodes).seconds <= predicted


def test_on_one_port_a_broadcast_in_parts_is_faster_since_its_levels_are_other_ranks_work():
    nodes = [rank // 4 for rank in range(16)]
    links = uniform(Link("link", 1, 1), 16)

    def seconds(parts):
        return simulate("broadcast", "hierarchical", [1000] * 16, 8, links, nodes=nodes, parts=parts).seconds

    assert seconds(8) < 0.75 * seconds(1)


def test_the_order_of_reduction_is_the_rings_in_the_node_then_the_rings_across():
    def text(collective, nodes, rank, element):
        return str(prove(collective, "hierarchical", len(nodes), len(nodes), nodes=nodes).results[rank][element])

    assert text("allreduce", (0, 0, 1, 1), 3, 0) == "element 0 = (x0 op x1) op (x2 op x3), finished"
    assert text("allreduce", (0, 1, 0, 1), 2, 3) == "element 3 = (x3 op x1) op (x2 op x0), finished"
    assert text("reduce_scatter", (0, 0, 1, 1), 1, 0) == "element 1 = (x1 op x0) op (x3 op x2), finished"


def test_wrong_options_are_refused():
    for collective in COLLECTIVES:
        with pytest.raises(ValueError, match="hierarchical: nodes has 3 entries for 4 ranks; give every rank's node"):
            prove(collective, "hierarchical", 4, 4, nodes=(0, 0, 1))
        with pytest.raises(ValueError, match="hierarchical: parts is 0; it must be at least 1"):
            prove(collective, "hierarchical", 4, 4, parts=0)


@pytest.mark.parametrize(
    ("collective", "parts", "changes", "fault", "text"),
    [
        pytest.param(
            "allreduce",
            1,
            [("sent, own, op.partial)", "sent, own, op)")],
            faults.MissingContribution,
            r"rank 0, round \d: finish of 5 elements: .* is finished without ranks \[3, 4, 5, 6\]",
            id="the_node_finishes_what_is_not_complete",
        ),
        pytest.param(
            "allreduce",
            3,
            [("comm.lane(k)", "comm.lane(0)")],
            faults.SharedLane,
            r"rank \d, round \d: messages from rank \d to rank \d on lane 0 of two lanes",
            id="two_levels_on_one_lane",
        ),
        pytest.param(
            "allreduce",
            2,
            [("parts[wave - k][k]", "parts[wave % len(parts)][k]")],
            faults.UnsetData,
            r"on lane 1",
            id="a_level_begins_before_the_one_below_it_has_ended",
        ),
        pytest.param(
            "reduce_scatter",
            1,
            [("served = [packed[rank] for rank in at.served]", "served = [packed[rank] for rank in at.served[::-1]]")],
            faults.WrongElement,
            r"reduce_scatter: result of rank 3, element 0 is element \d+ = .* instead of element",
            id="chunks_are_handed_to_the_wrong_ranks",
        ),
        pytest.param(
            "reduce_scatter",
            1,
            [("order = [rank for rail in rails for rank in rail]", "order = list(range(comm.size))")],
            faults.MissingContribution,
            r"result of rank 1, element 0 is element 2 = x1: without ranks",
            id="chunks_are_packed_in_the_order_of_the_buffer",
        ),
        pytest.param(
            "broadcast",
            1,
            [("None if filled else ring.allgather", "ring.allgather")],
            faults.ReadOnly,
            r"rank 0, round \d: receive",
            id="the_roots_node_gathers_what_it_has",
        ),
    ],
)
def test_a_planted_bug_is_found(plant, collective, parts, changes, fault, text):
    nodes = (0, 0, 0, 1, 1, 1, 1)
    plant(collective, hierarchical)
    prove(collective, "planted", 7, 14 * parts, nodes=nodes, parts=parts)
    plant(collective, hierarchical, *changes)
    with pytest.raises(fault, match=text) as caught:
        prove(collective, "planted", 7, 14 * parts, nodes=nodes, parts=parts)
    assert type(caught.value) is fault
