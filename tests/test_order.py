"""Algorithms with their ranks in another order: proven, costed; rings cross between nodes no more than they must."""

import pytest

from mpicoll import cost, selection
from mpicoll.algorithms import FAMILIES, SAME_LENGTH, parameters
from mpicoll.algorithms.cut import even
from mpicoll.pricing import options_of
from mpicoll.selection import HOST, Nodes
from mpicoll.world import prove
from mpicoll.world.trace import Recorded

ALL = [(collective, name) for collective, names in FAMILIES.items() for name in names]
ORDERS = [(0,), (1, 0), (0, 2, 1), (2, 4, 1, 0, 3), (0, 3, 1, 4, 2, 5)]


@pytest.mark.parametrize(("collective", "algorithm"), ALL, ids=[" ".join(pair) for pair in ALL])
def test_an_algorithm_is_proven_in_any_order_and_costs_what_it_costs(collective, algorithm):
    alike = (collective, algorithm) in SAME_LENGTH or collective in ("alltoall", "gather", "scatter")
    chunked = {"chunks", "result_chunks"} & set(parameters(FAMILIES[collective][algorithm]))
    for order in ORDERS:
        size = len(order)
        for counts in [even(size + 2, size), [3] * size]:
            if collective == "barrier" or (alike and len(set(counts)) > 1):
                counts = [0 if collective == "barrier" else 2] * size
            root = order[-1]
            proof = prove(collective, algorithm, size, counts=counts, root=root, order=order)
            given = [counts[r] for r in order] if chunked else counts
            for rank, counted in enumerate(proof.counts):
                expected = cost.of(collective, algorithm, order.index(rank), given, 8, order.index(root))
                assert cost.Cost(**vars(counted)) == expected


def test_the_library_counts_ranks_node_by_node_and_its_costs_are_those_of_what_runs():
    nodes = Nodes((0, 1, 0, 1, 0, 1))
    for collective, algorithm in ALL:
        if algorithm == "hierarchical":
            continue
        options = options_of(collective, algorithm, 48, nodes, HOST)
        assert selection.machine_order(nodes, options) == (0, 2, 4, 1, 3, 5)
        if collective in ("allreduce", "reduce_scatter"):
            proof = prove(collective, algorithm, 6, 7, order=(0, 2, 4, 1, 3, 5), **options)
            for rank, counted in enumerate(proof.counts):
                stated = selection.cost_of(collective, algorithm, rank, even(7, 6), 8, 0, nodes, HOST)
                assert cost.Cost(**vars(counted)) == stated
    assert selection.machine_order(Nodes((0, 0, 1, 1)), {}) is None
    assert selection.machine_order(nodes, {"nodes": nodes}) is None


@pytest.mark.parametrize("nodes", [(0, 0, 0, 1, 1, 1), (0, 1, 0, 1, 0, 1), (0, 1, 1, 0, 1, 0)])
def test_a_ring_crosses_as_often_however_ranks_were_placed(nodes):
    world = Recorded(6)
    order = selection.machine_order(Nodes(nodes), {})
    prove("allreduce", "ring", 6, 12, world=world, order=order)
    edges = {(message.source, message.dest) for message in world.passed()}
    assert len(edges) == 6
    assert sorted(nodes[a] for a, b in edges if nodes[a] != nodes[b]) == [0, 1]  # one leaves each node


def test_the_choice_does_not_depend_on_the_placement():
    for nbytes in 1 << 10, 1 << 20, 1 << 24:
        rows, turns = Nodes((0, 0, 0, 0, 1, 1, 1, 1)), Nodes((0, 1) * 4)
        allowed = tuple(FAMILIES["allreduce"])
        choices = [selection.choose("allreduce", nbytes, nodes, allowed) for nodes in (rows, turns)]
        assert choices[0] == choices[1]
