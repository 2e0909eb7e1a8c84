"""Circulant graphs: the broadcast's schedule, chunks that are not of one array, and bugs planted in the text."""

import pytest

from mpicoll.algorithms import circulant
from mpicoll.algorithms.cut import cut, runs
from mpicoll.world import faults, prove


def test_a_skip_is_half_of_the_next_one_rounded_up():
    assert circulant.skips(1) == (1,)
    assert circulant.skips(16) == (1, 2, 4, 8, 16)
    assert circulant.skips(21) == (1, 2, 3, 6, 11, 21)


@pytest.mark.parametrize("size", [*range(2, 100), 127, 128, 129, 255, 257])
def test_every_rank_receives_every_segment_once_from_a_rank_that_has_it(size):
    skips = circulant.skips(size)
    rounds = len(skips) - 1
    arrivals = [circulant.arrivals(size, vrank) for vrank in range(size)]
    firsts = [max(numbers) for numbers in arrivals]
    for vrank in range(1, size):
        assert firsts[vrank] >= 0
        others = set(range(-rounds, 0)) - {firsts[vrank] - rounds}
        assert sorted(arrivals[vrank]) == sorted(others | {firsts[vrank]})
        for k in range(rounds):  # what arrives has arrived at its sender in an earlier round or an earlier phase
            sender, number = (vrank - skips[k]) % size, arrivals[vrank][k]
            if sender == 0:
                assert number == k
            else:
                assert number in arrivals[sender][:k] or number + rounds in arrivals[sender]


@pytest.mark.parametrize("segments", [2, 3, 5, 11, 12])  # a wrong schedule may be right for few of them
def test_a_broadcast_in_any_number_of_segments_reaches_every_rank(segments):
    for size in [*range(1, 20), 33]:
        for count in 2, segments + 1:
            prove("broadcast", "circulant", size, count, root=size // 3, segments=segments)


def test_too_few_segments_are_refused():
    with pytest.raises(ValueError, match="circulant: segments is 0; it must be at least 1"):
        prove("broadcast", "circulant", 3, 5, segments=0)


def test_chunks_need_not_be_of_one_array(register):
    def listed(comm, chunks, result_chunks, op):
        yield from circulant.allreduce(comm, list(chunks), list(result_chunks), op)

    register("allreduce", listed)
    for size in 1, 2, 3, 5, 8, 11:
        for in_place in False, True:
            prove("allreduce", "planted", size, counts=[3 * rank % 5 for rank in range(size)], in_place=in_place)


def test_a_range_of_chunks_is_one_view_unless_it_goes_round_the_end():
    for size in range(2, 12):
        pieces = cut(range(3 * size), size)
        for rank in range(size):
            around = [(rank + i) % size for i in range(size)]
            near, far = (runs(pieces, part) for part in (around[: (size + 1) // 2], around[(size + 1) // 2 :]))
            assert len(near) + len(far) <= 3
            assert [x for view in (*near, *far) for x in view] == [x for i in around for x in pieces[i]]


@pytest.mark.parametrize(
    ("collective", "change", "size", "fault", "text"),
    [
        pytest.param(
            "reduce_scatter",
            ("around[size - half : half]", "around[half:half]"),
            5,
            faults.UnsetData,
            "rank 0, round 1: send of 1 elements to rank 2: 1 of 1 elements are unset",
            id="the_middle_chunk_is_forgotten",
        ),
        pytest.param(
            "reduce_scatter",
            ("partial[ends[skip] : ends[before]]", "partial[: ends[before - skip]]"),
            5,
            faults.WrongElement,
            "rank 0, round 1: op of 1 elements: element 0 = x0 op x2 is combined with element 3 = x3 op x0",
            id="what_is_kept_is_sent",
        ),
        pytest.param(
            "reduce_scatter",
            ("(*skips((size + 1) // 2), size)", "(*skips(size // 2), size)"),
            5,
            faults.WrongElement,
            "rank 0, round 0: op of 2 elements: element 0 = x0 is combined with element 1 = x3",
            id="skips_are_rounded_down",
        ),
        pytest.param(
            "allgather",
            ("if after == size)", "if after > size)"),
            5,
            faults.UnsetData,
            "allgather: result of rank 3, element 0 is unset",
            id="what_goes_round_the_end_is_not_copied",
        ),
        pytest.param(
            "allgather",
            ("near[: ends[after - skip]], left", "near[: ends[skip]], left"),
            5,
            faults.WrongLength,
            "send of 2 elements to rank 1: meets rank 1, round 1: receive of 1 elements",
            id="too_much_is_sent",
        ),
        pytest.param(
            "broadcast",
            ("here < latest and ", ""),
            33,
            faults.Overlap,
            "rank 31, round 3: send of . elements to rank 1 and receive of . elements from rank 28 share memory",
            id="a_path_of_the_schedule_is_taken_twice",
        ),
        pytest.param(
            "broadcast",
            (" or at > goal - distances[step + 1]", ""),
            13,
            faults.Overlap,
            "rank 3, round .: send of . elements to rank 7 and receive of . elements from rank 12 share memory",
            id="a_path_of_the_schedule_goes_too_far",
        ),
        pytest.param(
            "broadcast",
            ("start = -last % rounds", "start = 0"),
            5,
            faults.UnsetData,
            "broadcast: result of rank 1, element 4 is unset",
            id="the_last_phase_is_cut_short",
        ),
    ],
)
def test_a_planted_bug_is_found(plant, collective, change, size, fault, text):
    options = {"segments": 6} if collective == "broadcast" else {}
    plant(collective, circulant)
    prove(collective, "planted", size, size, **options)
    plant(collective, circulant, change)
    with pytest.raises(fault, match=text) as caught:
        prove(collective, "planted", size, size, **options)
    assert type(caught.value) is fault
