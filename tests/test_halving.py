"""Recursive halving, swing and dissemination: who holds what, chunks not of one array, and bugs planted in the text."""

import pytest

from mpicoll.algorithms import dissemination, halving, recursive_halving, swing
from mpicoll.algorithms.recursive_halving import far_first, near_first
from mpicoll.world import faults, prove

each_peer = pytest.mark.parametrize("peer", [far_first, near_first, swing.peer], ids=["far", "near", "swing"])


def test_distances_are_those_of_the_papers():
    assert [far_first(0, step, 16) for step in range(4)] == [8, 4, 2, 1]
    assert [near_first(5, step, 16) for step in range(4)] == [4, 7, 1, 13]
    assert [swing.peer(0, step, 64) for step in range(6)] == [1, 63, 3, 59, 11, 43]
    assert [swing.peer(1, step, 64) for step in range(6)] == [0, 2, 62, 6, 54, 22]


@each_peer
@pytest.mark.parametrize("size", [1, 2, 4, 8, 16, 32, 256])
def test_what_a_rank_keeps_is_one_piece_and_what_it_and_those_it_will_meet_own(peer, size):
    layout, steps = halving.layout(peer, size), size.bit_length() - 1
    assert sorted(layout) == list(range(size))
    kept = [{rank} for rank in range(size)]  # before the last step, then before the one before, ...
    for step in reversed(range(steps)):
        others = [peer(rank, step, size) for rank in range(size)]
        assert all(others[other] == rank for rank, other in enumerate(others))
        for rank, other in enumerate(others):
            _, exchanges = halving.exchanges(peer, rank, range(size), range(size + 1))
            _, keep, give = exchanges[step]
            assert (set(layout[keep]), set(layout[give])) == (kept[rank], kept[other])
        kept = [kept[rank] | kept[other] for rank, other in enumerate(others)]


def test_swing_stays_nearer_on_a_ring_than_recursive_halving():
    for size in 8, 16, 64, 256:
        sums = []
        for peer in near_first, swing.peer:
            hops = [peer(0, step, size) for step in range(size.bit_length() - 1)]
            sums.append(sum(min(hop, size - hop) for hop in hops))
        assert sums[1] < sums[0]


@pytest.mark.parametrize("collective", ["allreduce", "reduce", "reduce_scatter"])
def test_near_first_keeps_the_same_promise(collective):
    for size in range(1, 14):
        for counts in [1] * size, [3 * rank % 5 for rank in range(size)]:
            for root in {0, size // 2} if collective == "reduce" else {0}:
                for in_place in False, True:
                    prove(collective, "recursive_halving", size, counts=counts, root=root, in_place=in_place, near=True)


def test_the_order_of_reduction_is_the_stated_one():
    def order(algorithm, **options):
        return str(prove("allreduce", algorithm, 4, 1, **options).results[3][0])

    assert order("recursive_halving") == "element 0 = (x0 op x2) op (x1 op x3), finished"
    assert order("recursive_halving", near=True) == "element 0 = (x0 op x1) op (x2 op x3), finished"
    assert order("swing") == "element 0 = (x0 op x1) op (x2 op x3), finished"


def test_chunks_need_not_be_of_one_array(register):
    def listed(comm, chunks, result_chunks, op):
        own = result_chunks[comm.rank]
        yield from swing.reduce_scatter(comm, list(chunks), own, op)
        yield from swing.allgather(comm, own, list(result_chunks))

    register("allreduce", listed)
    for size in 1, 2, 3, 5, 8, 11:
        for in_place in False, True:
            prove("allreduce", "planted", size, counts=[3 * rank % 5 for rank in range(size)], in_place=in_place)


@pytest.mark.parametrize(
    ("collective", "change", "size", "fault", "text"),
    [
        pytest.param(
            "allreduce",
            ("comm.rank else op(into, mine, got)\n        mine = into\n", "comm.rank else op(into, mine, got)\n"),
            6,
            faults.MissingContribution,
            r"finish of .* elements: .* is finished without ranks",
            id="what_was_folded_in_is_dropped",
        ),
        pytest.param(
            "allreduce",
            ("if position < first + half", "if position >= first + half"),
            4,
            faults.WrongElement,
            r"rank ., round 1: op of 2 elements: element \d = x0 op x1 is combined with element \d = x2 op x3",
            id="the_wrong_half_is_kept",
        ),
        pytest.param(
            "allreduce",
            ("comm.Irecv(result[give], other)", "comm.Irecv(result[keep], other)"),
            4,
            faults.Overlap,
            "share memory",
            id="what_arrives_lands_on_what_is_sent",
        ),
        pytest.param(
            "reduce_scatter",
            ("runs(chunks, order)", "runs(chunks, range(comm.size))"),
            8,
            faults.WrongElement,
            "reduce_scatter: result of rank ., element 0 is element .* instead of element",
            id="the_chunks_do_not_lie_in_the_order_of_the_layout",
        ),
        pytest.param(
            "reduce_scatter",
            ("comm.Isend(out[:theirs]", "comm.Isend(out[theirs:]"),
            6,
            faults.WrongElement,
            "reduce_scatter: result of rank 0, element 0 is element 2 .* instead of element 0",
            id="a_pair_mixes_up_its_chunks",
        ),
        pytest.param(
            "allgather",
            ("comm.Irecv(whole, partner)", "comm.Irecv(whole[: len(sendbuf)], partner)"),
            6,
            faults.WrongLength,
            "send of 12 elements to rank .: meets rank ., round 1: receive of 2 elements",
            id="the_one_that_does_not_act_gets_a_part",
        ),
    ],
)
@pytest.mark.parametrize("peer", [near_first, swing.peer], ids=["near", "swing"])
def test_a_bug_planted_in_the_exchanges_is_found(plant, collective, change, size, fault, text, peer):
    plant(collective, halving)
    prove(collective, "planted", size, 2 * size, peer=peer)
    plant(collective, halving, change)
    with pytest.raises(fault, match=text) as caught:
        prove(collective, "planted", size, 2 * size, peer=peer)
    assert type(caught.value) is fault


def test_a_last_step_that_is_told_by_what_it_keeps_is_found(plant):
    plant("reduce_scatter", halving, ("into[keep] if left else out", "out if keep == steps[-1][1] else into[keep]"))
    prove("reduce_scatter", "planted", 4, 4, peer=far_first)
    with pytest.raises(faults.UnsetData, match="element 0 = x1 op x3 is combined with unset data"):
        prove("reduce_scatter", "planted", 4, 1, peer=far_first)  # empty chunks: both steps keep the same


@pytest.mark.parametrize(
    ("change", "fault", "text"),
    [
        pytest.param(
            ("            return\n        yield comm.Irecv", "        yield comm.Irecv"),
            faults.Unsent,
            "rank 1, round 4: receive of 3 elements from rank 2 waits for ever: rank 2 has finished",
            id="a_rank_goes_on_after_it_has_sent_everything",
        ),
        pytest.param(
            ("comm.Isend(into[keep], other)", "comm.Isend(into[give], other)"),
            faults.UnsetData,
            "rank 5, round 3: send of 6 elements to rank 2: 6 of 6 elements are unset",
            id="a_rank_sends_what_it_gave_away",
        ),
        pytest.param(
            ("result if comm.rank == root else comm.scratch(sendbuf)", "sendbuf if result is None else result"),
            faults.ReadOnly,
            "its array is only to be read",
            id="the_sendbuf_is_written",
        ),
    ],
)
def test_a_bug_planted_in_the_way_to_the_root_is_found(plant, change, fault, text):
    plant("reduce", recursive_halving)
    prove("reduce", "planted", 6, 12, root=2)
    plant("reduce", recursive_halving, change)
    with pytest.raises(fault, match=text) as caught:
        prove("reduce", "planted", 6, 12, root=2)
    assert type(caught.value) is fault


def test_a_dissemination_of_too_few_rounds_is_found(plant):
    plant("barrier", dissemination, ("distance *= 2", "distance *= 3"))
    with pytest.raises(faults.LeftEarly, match=r"barrier: rank 0 can leave before ranks \[.*\] have entered"):
        prove("barrier", "planted", 8)
