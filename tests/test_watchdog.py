"""Who waits for whom, from what the ranks say."""

from mpicoll.watchdog import chain, progressed


def waiting(peers, calls=5):
    what = f"allreduce (round 1: for rank {peers[0]}, 8 bytes)" if peers else None
    last = [("allreduce", "ring", 8000), ("barrier", "dissemination", 0)]
    return {
        "waits": what,
        "peers": peers,
        "where": "train.py:123 in forward",
        "stack": ["s"],
        "calls": calls,
        "last": last,
    }


def test_the_chain_ends_at_the_rank_in_its_own_code():
    states = {3: waiting([2]), 2: waiting([0]), 0: waiting([]), 1: waiting([0])}
    assert chain(states, 3, range(4)) == [
        "  rank 3 waits for rank 2 in allreduce (round 1: for rank 2, 8 bytes)",
        "  rank 2 waits for rank 0 in allreduce (round 1: for rank 0, 8 bytes)",
        "  rank 0 is in its own code: train.py:123 in forward",
        "    s",
    ]


def test_of_several_peers_the_one_that_waits_for_nobody_is_followed():
    states = {0: waiting([1, 2]), 1: waiting([0]), 2: waiting([])}
    assert chain(states, 0, range(3))[-2] == "  rank 2 is in its own code: train.py:123 in forward"


def test_a_rank_that_says_nothing_is_named():
    states = {0: waiting([1, 2]), 2: waiting([0])}
    assert "rank 1 does not answer: it is stopped, or dead" in chain(states, 0, range(3))[-1]
    assert "rank 1 shares no open communicator with rank 0" in chain(states, 0, {0, 2})[-1]


def test_a_circle_is_told():
    states = {0: waiting([1]), 1: waiting([2]), 2: waiting([1])}
    *_, last = chain(states, 0, range(3))
    assert "in a circle: ranks 1, 2 wait for each other" in last
    assert "MPICOLL_DEBUG=1" in last


def test_who_is_behind_is_told_with_his_last_calls():
    states = {0: waiting([], calls=4), 1: waiting([0]), 2: waiting([0])}
    assert progressed(states) == [
        "  rank 0 has started 4 calls on this communicator; the last:",
        "    call 3: allreduce by ring, 8,000 bytes",
        "    call 4: barrier by dissemination, 0 bytes",
        "  ranks 1, 2 have started 5 calls on this communicator; the last:",
        "    call 4: allreduce by ring, 8,000 bytes",
        "    call 5: barrier by dissemination, 0 bytes",
    ]


def test_ranks_that_called_different_things_are_told_apart():
    states = {0: waiting([1]), 1: waiting([0]), 2: waiting([0])}
    states[1]["last"] = [("allreduce", "ring", 8000), ("broadcast", "tree", 8)]
    lines = progressed(states)
    assert lines[0].startswith("  ranks 0, 2 have started 5")
    assert lines[3:] == [
        "  rank 1 has started 5 calls on this communicator; the last:",
        "    call 4: allreduce by ring, 8,000 bytes",
        "    call 5: broadcast by tree, 8 bytes",
    ]
