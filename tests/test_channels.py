"""Channels: every flat algorithm in k parts side by side, proven and costed; their directions alternate."""

import inspect

import pytest

from mpicoll import algorithms, cost
from mpicoll.algorithms import CHANNELLED, FAMILIES, channels
from mpicoll.algorithms.cut import even
from mpicoll.links import Link, uniform
from mpicoll.world import faults, prove
from mpicoll.world.clock import Transfer, simulate

EVERY = [(collective, name) for collective in CHANNELLED for name in FAMILIES[collective] if name != "hierarchical"]


@pytest.mark.parametrize(("collective", "algorithm"), EVERY)
def test_every_flat_algorithm_in_channels_is_proven_and_costs_the_sum_of_their_closed_forms(collective, algorithm):
    for size in 1, 2, 3, 6:
        for k in 2, 3:
            root = size // 2 if collective in ("broadcast", "reduce") else 0
            for counts in [0] * size, even(size + 1, size), [5 * rank % 7 for rank in range(size)]:
                proof = prove(collective, algorithm, size, counts=counts, root=root, in_place=k == 2, channels=k)
                for rank, counted in enumerate(proof.counts):
                    expected = cost.of(collective, algorithm, rank, counts, 8, root, channels=k)
                    assert cost.Cost(**vars(counted)) == expected


def test_each_of_eight_channels_has_its_own_lane_and_there_is_no_ninth():
    prove("allreduce", "ring", 3, 50, channels=8)
    for k, text in (9, "lane: k is 8 on path 0"), (0, "channels is 0; it must be at least 1"):
        with pytest.raises(ValueError, match=text):
            prove("allreduce", "ring", 3, 50, channels=k)


def test_k_channels_cost_k_times_the_alphas_and_the_same_bytes():
    for p in 2, 3, 8:
        for collective in "reduce_scatter", "allgather", "allreduce":
            one = [cost.of(collective, "ring", rank, [12] * p, 8) for rank in range(p)]
            for k in 2, 3, 4:
                for rank in range(p):
                    found = cost.of(collective, "ring", rank, [12] * p, 8, channels=k)
                    alphas = {name: k * getattr(one[rank], name) for name in ("rounds", "messages", "port_messages")}
                    assert found == one[rank]._replace(**alphas)


@pytest.mark.parametrize("algorithm", ["ring", "tree", "double_tree"])
def test_on_one_port_channels_take_at_most_the_predicted_time(algorithm):
    for collective in [name for name in CHANNELLED if algorithm in FAMILIES[name]]:
        for p in 2, 3, 5, 8:
            for k in 1, 2, 4:
                arguments = collective, algorithm, [24] * p, 8
                seconds = simulate(*arguments, uniform(Link("link", 1000, 7), p), channels=k).seconds
                predicted = cost.predict(*arguments, 1000, 7, 0, channels=k)
                assert seconds <= predicted
                if algorithm == "ring" and collective not in ("broadcast", "reduce"):
                    assert seconds == predicted


def test_channels_hide_the_reductions_that_one_tree_does_not():
    links = uniform(Link("link", 0, 1), 8)
    one, four = (simulate("reduce", "tree", [64] * 8, 8, links, 1, channels=k).seconds for k in (1, 4))
    assert four < 0.75 * one


def test_the_directions_of_the_rings_alternate():
    def neighbours(k):
        """To whom rank 0 sends on each lane."""
        arguments = "allreduce", "ring", [8] * 4, 8
        trace = simulate(*arguments, uniform(Link("link", 1, 1), 4), trace=True, channels=k).trace
        return sorted(
            {(event.number, event.dest) for event in trace if isinstance(event, Transfer) and event.source == 0}
        )

    assert neighbours(1) == [(0, 1)]
    assert neighbours(4) == [(1, 1), (2, 3), (3, 1), (4, 3)]


def test_the_order_of_reduction_is_the_algorithms_in_odd_channels_of_the_ranks_backwards():
    proof = prove("allreduce", "ring", 4, 8, channels=2)
    assert str(proof.results[1][2]) == "element 2 = x1 op (x0 op (x3 op x2)), finished"
    assert str(proof.results[1][3]) == "element 3 = x1 op (x2 op (x3 op x0)), finished"
    proof = prove("reduce", "tree", 4, 2, channels=2)
    assert str(proof.results[0][0]) == "element 0 = (x0 op x1) op (x2 op x3), finished"
    assert str(proof.results[0][1]) == "element 1 = (x0 op x3) op (x2 op x1), finished"


def test_the_option_is_part_of_the_signature_where_there_is_one():
    for collective, family in FAMILIES.items():
        for name, function in family.items():
            expected = (collective, name) in EVERY
            assert ("channels" in inspect.signature(function).parameters) == expected
    with pytest.raises(ValueError, match="cost: channels is 2, but linear has none for gather"):
        cost.of("gather", "linear", 0, [1, 1], 8, channels=2)


# Planted bugs, in the helper.


@pytest.fixture
def plant_channels(monkeypatch):
    """plant_channels(old, new): channels run by the helper with a piece of its text replaced."""

    def replaced(old, new):
        source = inspect.getsource(channels)
        assert source.count(old) == 1
        namespace = {"__name__": channels.__name__, "__package__": channels.__package__}
        exec(compile(source.replace(old, new), "planted in channels", "exec"), namespace)
        monkeypatch.setattr(algorithms, "side_by_side", namespace["side_by_side"])

    return replaced


@pytest.mark.parametrize(
    ("collective", "algorithm", "old", "new", "fault", "text"),
    [
        pytest.param(
            "allreduce",
            "ring",
            "comm.lane(k)",
            "comm.lane(k % 2)",
            faults.SharedLane,
            r"messages from rank 0 to rank \d on lane 0 of two lanes",
            id="channels_share_lanes",
        ),
        pytest.param(
            "allreduce",
            "ring",
            "channels)[k] for chunk in",
            "channels)[0] for chunk in",
            faults.FinishedTwice,
            r"rank \d on lane 1, round \d: finish of",
            id="all_channels_take_the_first_part",
        ),
        pytest.param(
            "reduce_scatter",
            "ring",
            "seen(name, argument, order)]",
            "seen(name, argument, sorted(order))]",
            faults.WrongElement,
            r"reduce_scatter: result of rank 0, element \d is element \d+ = .* instead of element",
            id="the_chunks_are_not_turned_with_the_ranks",
        ),
        pytest.param(
            "broadcast",
            "tree",
            "return seen(name, argument, order)",
            "return argument",
            faults.ReadOnly,
            r"rank 0 on lane 1, round 0: receive of 4 elements from rank 1",
            id="the_root_is_not_turned_with_the_ranks",
        ),
    ],
)
def test_a_planted_bug_is_found(plant_channels, collective, algorithm, old, new, fault, text):
    prove(collective, algorithm, 4, 13, channels=3)
    plant_channels(old, new)
    with pytest.raises(fault, match=text) as caught:
        prove(collective, algorithm, 4, 13, channels=3)
    assert type(caught.value) is fault
