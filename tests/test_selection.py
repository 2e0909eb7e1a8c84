"""MPICOLL_ALGORITHM's grammar, and the choice by predicted time."""

import pytest

from mpicoll import cost
from mpicoll.algorithms import COLLECTIVES, FAMILIES
from mpicoll.algorithms.cut import even
from mpicoll.selection import DEVICE, HOST, Nodes, choose, chosen, family, forced, function, parse

EVERYTHING = {collective: tuple(family(collective)) for collective in (*COLLECTIVES, "alltoallv")}


def test_nothing_allows_everything():
    assert parse("") == EVERYTHING
    assert parse(" ; ") == EVERYTHING


def test_a_list_without_a_collective_is_for_all_without_a_part_of_their_own():
    allowed = parse("ring;allreduce:recursive_doubling,tree")
    assert set(allowed["allreduce"]) == {"tree", "recursive_doubling"}
    assert allowed["allgather"] == ("ring",)
    assert allowed["barrier"] == ()


def test_a_caret_excludes():
    allowed = parse("^ring,linear")
    for collective, names in FAMILIES.items():
        assert set(allowed[collective]) == set(names) - {"ring", "linear"}
    assert parse("allreduce:^ring")["allgather"] == EVERYTHING["allgather"]
    assert "ring" not in parse("allreduce:^ring")["allreduce"]


def test_case_and_blanks_do_not_matter():
    assert parse(" Ring ; AllReduce : Tree ") == parse("ring;allreduce:tree")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("rign", "'rign' in 'rign' is no algorithm; there are"),
        ("allreduc:ring", "'allreduc' in 'allreduc:ring' is no collective; there are"),
        ("broadcast:recursive_doubling", "'recursive_doubling' in .* is no algorithm of broadcast; there are"),
        ("ring;tree", "has two parts for all collectives"),
        ("allreduce:ring;allreduce:tree", "has two parts for allreduce"),
        ("allreduce:", "'' in 'allreduce:' is no algorithm of allreduce"),
        ("^", "is no algorithm"),
        ("ring,", "'' in 'ring,' is no algorithm"),
        (":ring", "'' in ':ring' is no collective"),
    ],
)
def test_what_does_not_exist_is_told(text, told):
    with pytest.raises(ValueError, match=f"MPICOLL_ALGORITHM: .*{told}"):
        parse(text)


def test_alltoallv_is_alltoall_without_algorithms_that_need_to_know_the_counts_of_other_ranks():
    assert parse("alltoallv:pairwise") == parse("alltoall:pairwise")
    assert set(FAMILIES["alltoall"]) - set(family("alltoallv")) == {"bruck"}
    assert parse("bruck")["alltoall"] == ("bruck",)
    assert choose("alltoallv", 0, (0,) * 64, EVERYTHING["alltoallv"]).algorithm == "pairwise"
    with pytest.raises(ValueError, match="alltoallv: algorithm is 'bruck', which needs chunks of one length"):
        forced("alltoallv", "bruck")
    with pytest.raises(ValueError, match="alltoallv: MPICOLL_ALGORITHM allows none of its algorithms pairwise"):
        choose("alltoallv", 0, (0,) * 64, parse("bruck")["alltoallv"])


def test_nothing_left_is_told_when_it_is_needed():
    with pytest.raises(ValueError, match=r"barrier: MPICOLL_ALGORITHM allows none of its algorithms .*add ';barrier:"):
        choose("barrier", 0, (0,) * 4, ())


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_the_shortest_predicted_time_wins(collective):
    for nodes in [(0,) * size for size in (1, 2, 3, 8, 100)]:
        for nbytes in (0, 8, 1 << 16, 1 << 24):
            for links in (HOST, DEVICE):
                choice = choose(collective, nbytes, nodes, EVERYTHING[collective], links)
                times = {name: links.predict(collective, name, nbytes, len(nodes)) for name in FAMILIES[collective]}
                assert choice.predicted == times
                assert times[choice.algorithm] == min(times.values())
                one = EVERYTHING[collective][-1:]
                assert choose(collective, nbytes, nodes, one, links).algorithm == one[0]


def test_the_prediction_is_the_cost_models():
    assert HOST.predict("allreduce", "ring", 1 << 24, 4) == cost.predict(
        "allreduce", "ring", even(1 << 24, 4), 1, HOST.node.alpha, HOST.node.beta, HOST.gamma
    )
    assert DEVICE.predict("broadcast", "ring", 1 << 24, 4) == cost.predict(
        "broadcast", "ring", even(1 << 24, 4), 1, DEVICE.node.alpha, DEVICE.node.beta, DEVICE.gamma, segments=4
    )


def test_an_algorithm_gets_the_segments_of_the_links():
    assert DEVICE.options("allreduce", "ring", 64 << 20, 2) == {"segments": 8}
    assert DEVICE.options("allreduce", "ring", 8, 2) == {"segments": 2}
    assert DEVICE.options("reduce", "ring", 64 << 20, 2) == {"segments": 16}
    assert DEVICE.options("allreduce", "tree", 64 << 20, 2) == {}
    assert function("reduce", "ring", 64 << 20, (0, 0), DEVICE).keywords == {"segments": 16}
    assert function("allgather", "ring", 64 << 20, (0, 0), DEVICE) is FAMILIES["allgather"]["ring"]


def test_hierarchical_is_told_the_nodes():
    assert function("allreduce", "hierarchical", 8, (0, 0, 1), HOST).keywords == {"nodes": (0, 0, 1), "parts": 1}


def test_nodes_are_hashed_once_and_never_compared():
    class Number(int):
        asked = 0

        def __hash__(self):
            Number.asked += 1
            return super().__hash__()

        def __eq__(self, other):
            Number.asked += 1
            return super().__eq__(other)

    places, names = [Number(n) for n in (7, 7, 9)], EVERYTHING["allreduce"]
    nodes = Nodes(places)
    assert Number.asked == 3
    first = chosen("allreduce", 8, nodes, names, HOST)
    Number.asked = 0
    assert chosen("allreduce", 8, nodes, names, HOST) is first
    assert Number.asked == 0
    assert Nodes((7, 7, 9)) is nodes
    assert nodes == (7, 7, 9)
    assert hash(nodes) == hash((7, 7, 9))


def test_few_rounds_win_when_small_and_few_bytes_when_large():
    for size in (4, 8, 64):
        small = choose("allreduce", 8, (0,) * size, EVERYTHING["allreduce"]).algorithm
        large = choose("allreduce", 256 << 20, (0,) * size, EVERYTHING["allreduce"]).algorithm
        assert small == "recursive_doubling"
        assert cost.of("allreduce", large, 0, [1] * size, 1).sent == 2 * (size - 1)


def test_a_named_algorithm_is_taken_or_refused():
    assert forced("allreduce", "tree").algorithm == "tree"
    with pytest.raises(ValueError, match="allreduce: algorithm is 'rign'; there are 'recursive_doubling', 'tree'"):
        forced("allreduce", "rign")


def test_a_choice_is_printed_with_a_line_for_each_predicted_time():
    choice = choose("allreduce", 8, (0,) * 4, EVERYTHING["allreduce"])
    first, *times = str(choice).splitlines()
    assert first == f"{choice.algorithm}: {choice.reason}"
    assert [line.split()[0] for line in times] == list(choice.predicted)
