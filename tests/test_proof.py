"""Every algorithm is proven on symbolic data, and the proof itself on algorithms with planted bugs."""

import pytest

from mpicoll.algorithms import FAMILIES, SAME_LENGTH, exchange, linear, pairwise, recursive_doubling, ring, tree
from mpicoll.algorithms.cut import cut
from mpicoll.world import faults, prove

each_algorithm = pytest.mark.parametrize(
    ("collective", "algorithm"), [(collective, name) for collective, family in FAMILIES.items() for name in family]
)


def roots(collective, size):
    return {0, size // 2, size - 1} if collective in ("broadcast", "reduce", "gather", "scatter") else {0}


def whole(collective, algorithm, size, count):
    """The count, or a little more if all chunks have to be of one length."""
    return -(-count // size) * size if (collective, algorithm) in SAME_LENGTH else count


@each_algorithm
@pytest.mark.parametrize("in_place", [False, True], ids=["out_of_place", "in_place"])
def test_every_algorithm_keeps_its_promise_for_all_counts(collective, algorithm, in_place):
    for size in range(1, 18):
        counts = (0, 1, size - 1, size, size + 1, 2, 7, 37, 53) if size < 10 else (0, size - 1, size + 1, 37)
        for count in {whole(collective, algorithm, size, count) for count in counts}:
            for root in roots(collective, size):
                prove(collective, algorithm, size, count, root=root, in_place=in_place)


@each_algorithm
def test_every_algorithm_keeps_its_promise_on_many_ranks(collective, algorithm):
    for size in (19, 32, 47, 64):  # `explain verify` does the others
        count = whole(collective, algorithm, size, size + 1)
        prove(collective, algorithm, size, count, root=size // 3, in_place=size % 2 == 0)


@each_algorithm
@pytest.mark.parametrize("in_place", [False, True], ids=["out_of_place", "in_place"])
def test_uneven_counts_are_as_good_as_even_ones(collective, algorithm, in_place):
    if (collective, algorithm) in SAME_LENGTH:
        return
    for size in range(1, 12):
        for counts in [range(size), [0] * (size - 1) + [9], [3 * r % 5 for r in range(size)]]:
            for root in roots(collective, size):
                prove(collective, algorithm, size, counts=list(counts), root=root, in_place=in_place)


def test_every_pair_of_ranks_may_have_its_own_count_in_an_all_to_all():
    for algorithm in FAMILIES["alltoall"]:
        for size in range(1, 12) if ("alltoall", algorithm) not in SAME_LENGTH else ():
            counts = [[(3 * source + 5 * dest) % 7 for dest in range(size)] for source in range(size)]
            prove("alltoall", algorithm, size, counts=counts)


@pytest.mark.parametrize(("collective", "algorithm"), sorted(SAME_LENGTH))
def test_chunks_that_pass_through_other_ranks_have_to_be_of_one_length(collective, algorithm):
    for size in 2, 5:
        uneven = [2] * (size - 1) + [1]
        by_pairs = [[1] * size] * (size - 1) + [[2] * size]
        for counts in [uneven, by_pairs] if collective == "alltoall" else [uneven]:
            with pytest.raises(ValueError, match=f"{algorithm}: {collective}: .* some of 1 and some of 2 elements"):
                prove(collective, algorithm, size, counts=counts)


@pytest.mark.parametrize("segments", [2, 3, 5, 8])
def test_any_number_of_segments_gives_the_same_order_of_reduction(segments):
    for size in range(1, 10):
        expressions = [value.expression for value in prove("allreduce", "ring", size, 3 * size).results[0]]
        proof = prove("allreduce", "ring", size, 3 * size, segments=segments)
        assert str([value.expression for value in proof.results[0]]) == str(expressions)


@pytest.mark.parametrize("segments", [1, 2, 3, 8])
def test_broadcast_and_reduce_go_down_the_ring_in_any_number_of_segments(segments):
    for size in range(1, 8):
        for count in 0, 1, 7, 24:
            for root in roots("broadcast", size):
                prove("broadcast", "ring", size, count, root=root, segments=segments)
                for in_place in False, True:
                    prove("reduce", "ring", size, count, root=root, in_place=in_place, segments=segments)


def test_too_few_segments_are_refused():
    for collective, least in ("broadcast", 1), ("reduce", 1), ("reduce_scatter", 2), ("allreduce", 2):
        with pytest.raises(ValueError, match=f"ring: segments is {least - 1}; it must be at least {least}"):
            prove(collective, "ring", 3, 5, segments=least - 1)


@each_algorithm
def test_the_order_in_which_ranks_step_changes_nothing(collective, algorithm):
    for size in 2, 3, 6, 8:
        count = whole(collective, algorithm, size, 2 * size + 1)
        proof = prove(collective, algorithm, size, count)
        for seed in range(4):
            other = prove(collective, algorithm, size, count, seed=seed)
            assert other.counts == proof.counts
            assert texts(other) == texts(proof)


def texts(proof):
    return [None if result is None else [str(value) for value in result] for result in proof.results]


def test_the_expressions_are_those_the_algorithms_state():
    assert str(prove("allreduce", "ring", 4, 4).results[2][3]) == "element 3 = x3 op (x2 op (x1 op x0)), finished"
    assert str(prove("reduce", "tree", 4, 1).results[0][0]) == "element 0 = (x0 op x1) op (x2 op x3), finished"
    balanced = "element 0 = ((x0 op x1) op (x2 op x3)) op (x4 op x5), finished"
    assert str(prove("allreduce", "tree", 6, 1).results[5][0]) == balanced
    assert str(prove("allreduce", "recursive_doubling", 6, 1).results[0][0]) == balanced
    from_the_left = "element 0 = ((x0 op x1) op x2) op x3, finished"
    assert str(prove("allreduce", "exchange", 4, 1, in_place=True).results[2][0]) == from_the_left
    assert str(prove("allreduce", "linear", 4, 1).results[2][0]) == from_the_left
    assert str(prove("reduce", "linear", 3, 1, root=1).results[1][0]) == "element 0 = (x1 op x2) op x0, finished"
    assert str(prove("reduce", "ring", 4, 1, root=1).results[1][0]) == "element 0 = x1 op (x2 op (x3 op x0)), finished"
    own_first = "element 2 = ((x2 op x1) op x0) op x3, finished"
    assert str(prove("reduce_scatter", "pairwise", 4, 4).results[2][0]) == own_first


# Compositions: groups, op.partial and lanes.


def two_levels(comm, sendbuf, result, op, inner="partial", per_node=3):
    """Reduce-scatter in the node, all-reduce across nodes, all-gather in the node."""
    first = comm.rank - comm.rank % per_node
    node = comm.group(list(range(first, first + per_node)))
    rail = comm.group(list(range(comm.rank % per_node, comm.size, per_node)))
    chunks, results = cut(sendbuf, per_node), cut(result, per_node)
    own = results[node.rank]
    yield from ring.reduce_scatter(node, chunks, own, op.partial if inner == "partial" else op)
    yield from recursive_doubling.allreduce(rail, own, own, op)
    yield from ring.allgather(node, own, results)


def test_a_composition_of_groups_gives_op_to_the_phase_that_completes_the_reduction(register):
    register("allreduce", two_levels)
    for size in 3, 6, 9, 12:
        for in_place in False, True:
            prove("allreduce", "planted", size, 2 * size + 1, in_place=in_place)
    with pytest.raises(faults.MissingContribution, match=r"is finished without ranks \[3, 4, 5\]"):
        prove("allreduce", "planted", 6, 6, inner="whole")


def test_channels_are_lanes_that_each_get_op(register):
    def channels(comm, sendbuf, result, op):
        halves = list(zip(cut(sendbuf, 2), cut(result, 2), strict=True))
        yield tuple(recursive_doubling.allreduce(comm.lane(k), *half, op) for k, half in enumerate(halves))

    register("allreduce", channels)
    for size in 1, 2, 5, 8:
        prove("allreduce", "planted", size, 9, in_place=True)


# The proof finds what is planted in the text of an algorithm.


FINISH = "    yield op.finish(result)\n    if rank"
ORDER = "op(result, got, mine) if peer < rank else op(result, mine, got)"


@pytest.mark.parametrize(
    ("collective", "module", "changes", "fault", "text"),
    [
        pytest.param(
            "reduce_scatter",
            ring,
            [("2 if size == 2 else segments + 1", "2")],
            faults.Overlap,
            r"rank \d, round 2: (receive|send) of 1 elements .* share memory",
            id="two_slots_take_turns",
        ),
        pytest.param(
            "reduce_scatter",
            ring,
            [("list(pieces[left])", "list(pieces[rank])"), ("rank - step - 2", "rank - step - 1")],
            faults.WrongElement,
            "reduce_scatter: result of rank 0, element 0 is element 2 = x0 op",
            id="the_ring_starts_at_its_own_chunk",
        ),
        pytest.param(
            "allgather",
            ring,
            [("rank - step - 1", "rank + step + 1")],
            faults.WrongElement,
            "allgather: result of rank 0, element 2 is element 6 = x3",
            id="chunks_end_in_the_wrong_place",
        ),
        pytest.param(
            "allreduce",
            recursive_doubling,
            [(ORDER, "op(result, mine, got)")],
            faults.Divergence,
            "result of rank 1, element 0 is element 0 = .x1 op x0.* on rank 0 it is element 0 = .x0 op x1",
            id="each_rank_puts_its_own_operand_first",
        ),
        pytest.param(
            "allreduce",
            recursive_doubling,
            [("vrank ^ distance", "vrank ^ 1")],
            faults.DoubledContribution,
            "rank 0, round 1: op of 8 elements: element 0 = x0 op x1 is combined with element 0 = x0 op x1: rank 0 is",
            id="a_rank_exchanges_twice_with_the_same_peer",
        ),
        pytest.param(
            "allreduce",
            recursive_doubling,
            [("while distance < power:", "while distance < power // 2:")],
            faults.MissingContribution,
            r"rank 0, round 0: finish of 8 elements: element 0 = x0 op x1 is finished without ranks \[2, 3\]",
            id="one_exchange_too_few",
        ),
        pytest.param(
            "allreduce",
            recursive_doubling,
            [(FINISH, FINISH.replace("op.finish(result)", "None"))],
            faults.NotFinished,
            "allreduce: result of rank 0, element 0 is element 0 = .x0 op x1",
            id="finish_is_forgotten",
        ),
        pytest.param(
            "allreduce",
            recursive_doubling,
            [(FINISH, "    yield op.finish(result)\n" + FINISH)],
            faults.FinishedTwice,
            "rank 0, round 1: finish of 8 elements",
            id="finish_is_called_twice",
        ),
        pytest.param(
            "allreduce",
            recursive_doubling,
            [(FINISH, "    comm.copy(result, sendbuf)\n" + FINISH)],
            faults.NotYielded,
            "rank 0, round 1: copy of 8 elements was made",
            id="a_copy_is_not_yielded",
        ),
        pytest.param(
            "reduce",
            tree,
            [("else comm.scratch(sendbuf)", "else sendbuf")],
            faults.ReadOnly,
            "rank 2, round 0: op of 8 elements: its array is only to be read",
            id="the_sendbuf_is_written",
        ),
        pytest.param(
            "broadcast",
            tree,
            [("yield comm.Irecv(buf, parent)", "yield comm.Irecv(comm.scratch(buf), parent)")],
            faults.UnsetData,
            "rank 2, round 1: send of 8 elements",
            id="what_is_received_is_thrown_away",
        ),
        pytest.param(
            "broadcast",
            tree,
            [("yield comm.Isend(buf, child)", "yield comm.Isend(buf, child), comm.Isend(buf, child)")],
            faults.Unreceived,
            "round .: send of 8 elements to rank . is never received",
            id="a_message_too_many",
        ),
        pytest.param(
            "reduce",
            linear,
            [("slots[i % len(slots)]", "slots[0]")],
            faults.Overlap,
            "rank 0, round 1: receive of 8 elements from rank 2 and op of 8 elements share memory",
            id="a_contribution_arrives_where_the_one_before_is_reduced",
        ),
        pytest.param(
            "gather",
            linear,
            [("comm.copy(result_chunks[root], sendbuf)", "None")],
            faults.UnsetData,
            "gather: result of rank 0, element 0 is unset",
            id="the_roots_own_chunk_is_forgotten",
        ),
        pytest.param(
            "scatter",
            linear,
            [("comm.Isend(chunks[peer], peer) for", "comm.Isend(chunks[-peer], peer) for")],
            faults.WrongElement,
            "scatter: result of rank 1, element 0 is element 6 = x0 instead of element 2",
            id="the_chunks_are_dealt_out_backwards",
        ),
        pytest.param(
            "allreduce",
            exchange,
            [
                ("parts[0], parts[1 if", "parts[rank], parts[1 if"),
                ("range(1, size):\n        out", "range(size):\n        out"),
            ],
            faults.DoubledContribution,
            "rank 0, round 0: op of 8 elements: element 0 = x0 is combined with element 0 = x0: rank 0 is in both",
            id="the_own_contribution_is_added_to_itself",
        ),
        pytest.param(
            "allreduce",
            exchange,
            [
                (
                    "op(out, so_far, parts[peer])",
                    "op(out, parts[peer], so_far) if rank == 2 else op(out, so_far, parts[peer])",
                )
            ],
            faults.Divergence,
            "result of rank 2, element 0 is element 0 = x3 op .x2 op .x1 op x0.*, on rank 0 it is",
            id="one_rank_reduces_from_the_right",
        ),
        pytest.param(
            "alltoall",
            pairwise,
            [
                (
                    "comm.Isend(chunks[dest], dest), comm.Irecv(result_chunks[source]",
                    "comm.Isend(chunks[dest], dest), comm.Irecv(result_chunks[dest]",
                )
            ],
            faults.WrongElement,
            "alltoall: result of rank 0, element 2 is element 0 = x3 instead of rank 1's",
            id="what_arrives_is_put_where_it_did_not_come_from",
        ),
        pytest.param(
            "reduce_scatter",
            pairwise,
            [("slots[step % len(slots)]", "slots[0]")],
            faults.Overlap,
            r"rank \d, round 1: receive of 2 elements from rank \d and op of 2 elements share memory",
            id="pairwise_with_one_slot",
        ),
        pytest.param(
            "reduce_scatter",
            pairwise,
            [("        mine = result\n", "")],
            faults.MissingContribution,
            r"rank 1, round 2: finish of 2 elements: element 2 = x1 op x2 is finished without ranks \[0, 3\]",
            id="only_the_last_contribution_counts",
        ),
        pytest.param(
            "broadcast",
            ring,
            [("comm.Isend(pieces[i - 1], right)", "comm.Isend(pieces[i % segments], right)")],
            faults.Overlap,
            "rank 1, round 1: receive of 4 elements from rank 0 and send of 4 elements to rank 2 share memory",
            id="a_segment_is_sent_on_while_it_arrives",
        ),
        pytest.param(
            "reduce",
            ring,
            [("slots[i % 2][:", "slots[0][:")],
            faults.Overlap,
            "rank .*, round 1: receive of 4 elements from rank . and send of 4 elements to rank . share memory",
            id="a_segment_arrives_where_the_one_before_is_being_sent",
        ),
        pytest.param(
            "barrier",
            recursive_doubling,
            [("while distance < power:", "while distance < power // 2:")],
            faults.LeftEarly,
            r"barrier: rank 0 can leave before ranks \[2, 3\] have entered",
            id="a_barrier_that_hears_of_half_the_ranks",
        ),
    ],
)
def test_a_planted_bug_is_found(plant, collective, module, changes, fault, text):
    options = {"segments": 2} if module is ring and collective != "allgather" else {}
    plant(collective, module)
    prove(collective, "planted", 4, 8, **options)
    plant(collective, module, *changes)
    with pytest.raises(fault, match=text) as caught:
        prove(collective, "planted", 4, 8, **options)
    assert type(caught.value) is fault


def test_two_alternating_slots_are_enough_for_two_ranks_only(plant):
    plant("reduce_scatter", ring, ("2 if size == 2 else segments + 1", "2"))
    prove("reduce_scatter", "planted", 2, 8)
    for size in range(3, 9):
        with pytest.raises(faults.Overlap):
            prove("reduce_scatter", "planted", size, 2 * size)


def test_a_barrier_does_not_hold_by_the_waiting_of_synchronous_sends(register):
    def barrier(comm, token, op):  # all send to rank 0, which sends nothing back: an eager send is complete at once
        if comm.rank == 0:
            yield tuple(comm.Irecv(token, peer) for peer in range(1, comm.size))
        else:
            yield comm.Isend(token, 0)

    register("barrier", barrier)
    with pytest.raises(faults.LeftEarly, match=r"rank 1 can leave before ranks \[0, 2\] have entered"):
        prove("barrier", "planted", 3)


def test_an_exchange_that_reduces_into_the_sendbuf_too_early_is_found(plant):
    plant("allreduce", exchange, ("result if peer == size - 1 else spare", "result"))
    prove("allreduce", "planted", 4, 8)
    with pytest.raises(faults.DoubledContribution, match="rank 2, round 0: op of 8 elements"):
        prove("allreduce", "planted", 4, 8, in_place=True)


def test_what_is_only_to_be_read_is_read_only_also_in_place(register):
    def writes(collective):
        def program(comm, chunks, result, root):
            yield from linear.scatter(comm, chunks, result, root)
            if comm.rank == root:
                yield comm.copy(chunks[-1], chunks[0])

        def rebroadcast(comm, buf, root):
            yield from tree.broadcast(comm, buf, root)
            yield comm.copy(buf[:1], buf[1:2])

        return program if collective == "scatter" else rebroadcast

    for collective in "scatter", "broadcast":
        register(collective, writes(collective))
        with pytest.raises(faults.ReadOnly, match=r"rank 0, .*: copy of \d elements"):
            prove(collective, "planted", 4, 8, in_place=True)


def test_in_place_means_that_the_result_shares_the_sendbufs_memory(register):
    def uses_sendbuf_late(comm, sendbuf, result, op):  # right only as long as result is other memory
        yield comm.copy(result, sendbuf)
        got, lower = comm.scratch(sendbuf), comm.rank == 0
        yield comm.Isend(sendbuf, 1 - comm.rank), comm.Irecv(got, 1 - comm.rank)
        yield op(result, result, got) if lower else op(result, got, result)
        yield op.finish(result)
        yield op(got, sendbuf, got) if lower else op(got, got, sendbuf)

    register("allreduce", uses_sendbuf_late)
    prove("allreduce", "planted", 2, 5)
    with pytest.raises(faults.FinishedReduced):
        prove("allreduce", "planted", 2, 5, in_place=True)
