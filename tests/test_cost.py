"""The closed forms: equal to what the world counts, and to the literature's where the size divides the count."""

import inspect
from fractions import Fraction

import pytest

from mpicoll import cost
from mpicoll.algorithms import FAMILIES, SAME_LENGTH, double_tree
from mpicoll.algorithms.cut import even
from mpicoll.world import prove

each_algorithm = pytest.mark.parametrize(
    ("collective", "algorithm"), [(collective, name) for collective, family in FAMILIES.items() for name in family]
)
ROOTED = ("broadcast", "reduce", "gather", "scatter")


def costs(collective, algorithm, counts, itemsize=8, **options):
    return [cost.of(collective, algorithm, rank, counts, itemsize, **options) for rank in range(len(counts))]


def counted(collective, algorithm, counts, **options):
    proof = prove(collective, algorithm, len(counts), counts=counts, **options)
    return [cost.Cost(**vars(counts)) for counts in proof.counts]


def whole(collective, algorithm, size, count):
    """The count, or a little more if all chunks have to be of one length."""
    return -(-count // size) * size if (collective, algorithm) in SAME_LENGTH else count


@each_algorithm
def test_the_closed_form_is_what_the_world_counts(collective, algorithm):
    for size in [*range(1, 14), 16, 17, 32, 33]:
        for count in {0, 1, size + 1, 37}:
            for root in {0, size // 2, size - 1} if collective in ROOTED else {0}:
                counts = even(whole(collective, algorithm, size, count), size)
                expected = counted(collective, algorithm, counts, root=root, in_place=count % 2 == 1)
                assert costs(collective, algorithm, counts, root=root) == expected


@each_algorithm
def test_it_also_is_for_uneven_counts(collective, algorithm):
    if (collective, algorithm) in SAME_LENGTH:
        return
    for size in range(1, 10):
        counts = [5 * rank % 7 for rank in range(size)]
        root = size // 2 if collective in ROOTED else 0
        assert costs(collective, algorithm, counts, root=root) == counted(collective, algorithm, counts, root=root)


def test_it_also_is_for_an_all_to_all_in_which_every_pair_has_its_own_count():
    for size in range(1, 10):
        counts = [[(3 * source + 5 * dest) % 7 for dest in range(size)] for source in range(size)]
        assert costs("alltoall", "pairwise", counts) == counted("alltoall", "pairwise", counts)


@pytest.mark.parametrize("collective", ["allreduce", "reduce_scatter", "broadcast", "reduce"])
def test_options_of_the_algorithm_count(collective):
    for size in range(1, 7):
        for segments in 2, 3, 4:
            counts = [3 + (rank == 1) for rank in range(size)]
            expected = counted(collective, "ring", counts, segments=segments)
            assert costs(collective, "ring", counts, segments=segments) == expected


@pytest.mark.parametrize("collective", ["allgather", "reduce_scatter"])
def test_the_number_of_chunks_in_a_message_of_pat_counts(collective):
    for size in [*range(1, 11), 17]:
        for aggregate in 1, 2, 3, 4:
            for counts in even(2 * size + 1, size), [5 * rank % 7 for rank in range(size)]:
                expected = counted(collective, "pat", counts, aggregate=aggregate)
                assert costs(collective, "pat", counts, aggregate=aggregate) == expected


@pytest.mark.parametrize("algorithm", ["bruck", "tree"])
def test_chunks_that_have_to_be_of_one_length_count_as_the_longest(algorithm):
    for collective in [collective for collective, name in SAME_LENGTH if name == algorithm]:
        for count in 17, 23:
            uneven = costs(collective, algorithm, even(count, 6))
            assert uneven == costs(collective, algorithm, even(whole(collective, algorithm, 6, count), 6))


SIZES = [2, 3, 4, 7, 8, 16, 60]


def even_costs(collective, algorithm, p, **options):
    """n bytes, cut evenly, and the rounds, messages, bytes sent and bytes reduced of all ranks."""
    return 6 * 8 * p, [cost[:4] for cost in costs(collective, algorithm, [6] * p, **options)]


@pytest.mark.parametrize("p", SIZES)
def test_the_ring_sends_the_least_possible(p):
    n, ranks = even_costs("reduce_scatter", "ring", p, segments=4)
    share = (p - 1) * n // p
    assert ranks == [(4 * (p - 1), 4 * (p - 1), share, share)] * p
    n, ranks = even_costs("allgather", "ring", p)
    assert ranks == [(p - 1, p - 1, share, 0)] * p
    n, ranks = even_costs("allreduce", "ring", p, segments=2)
    assert ranks == [(3 * (p - 1), 3 * (p - 1), 2 * share, share)] * p


@pytest.mark.parametrize("p", SIZES)
def test_bruck_takes_lg_p_rounds_and_pat_as_many_or_up_to_p_minus_1(p):
    for collective in "allgather", "reduce_scatter":
        n, ranks = even_costs(collective, "pat", p)
        least, reduced = share(p, n), share(p, n) * (collective == "reduce_scatter")
        assert ranks == [(lg(p), lg(p), least, reduced)] * p
        for aggregate in 1, 2, 4, 8:
            rounds = {cost[0] for cost in even_costs(collective, "pat", p, aggregate=aggregate)[1]}
            doublings = min(aggregate.bit_length() - 1, lg(p) - 1)
            assert rounds == {doublings + min((1 << lg(p)) >> doublings, p) - 1}
    assert even_costs("allgather", "bruck", p)[1] == [(lg(p), lg(p), least, 0)] * p


@pytest.mark.parametrize("p", SIZES)
def test_recursive_doubling_exchanges_everything_lg_p_times(p):
    n, ranks = even_costs("allreduce", "recursive_doubling", p)
    doublings = p.bit_length() - 1
    if p & (p - 1) == 0:
        assert ranks == [(doublings, doublings, doublings * n, doublings * n)] * p
    else:  # the fold: a pair's odd rank receives before and sends after
        assert max(ranks) == (doublings + 2, doublings + 1, (doublings + 1) * n, (doublings + 1) * n)


@pytest.mark.parametrize("p", SIZES)
@pytest.mark.parametrize("root", [0, 1])
def test_the_root_of_the_binomial_tree_takes_lg_p_rounds(p, root):
    depth = (p - 1).bit_length()
    n, ranks = even_costs("broadcast", "tree", p, root=root)
    assert ranks[root] == (depth, depth, depth * n, 0)
    assert sum(sent for _, _, sent, _ in ranks) == (p - 1) * n
    n, ranks = even_costs("reduce", "tree", p, root=root)
    assert ranks[root] == (depth, 0, 0, depth * n)
    assert sum(reduced for *_, reduced in ranks) == (p - 1) * n


# Times: the closed forms of the literature, as how often they have alpha, beta and gamma;
# s is the number of segments.


def lg(p):
    return (p - 1).bit_length()


def folded(p, n):
    """Recursive doubling of n bytes."""
    doublings, fold = p.bit_length() - 1, p & (p - 1) != 0
    return doublings + 2 * fold, (doublings + 2 * fold) * n, (doublings + fold) * n


def share(p, n):
    return (p - 1) * n // p


def halved(p, n):
    """What the first rank keeps in all steps together when n bytes, in elements of 8, are cut for the power of two."""
    q, count = 1 << (p.bit_length() - 1), n // 8
    return sum(8 * (ranks * (count // q) + min(ranks, count % q)) for ranks in (1 << k for k in range(lg(q))))


def halved_chunks(p, n, peer):
    """The most that a rank keeps, step by step, when every rank has a chunk; the first p - q of q ranks have two."""
    q = 1 << (p.bit_length() - 1)
    weights, total = [1 + (rank < p - q) for rank in range(q)], 0
    for step in reversed(range(lg(q))):
        total += max(weights)
        weights = [weights[rank] + weights[peer(rank, step, q)] for rank in range(q)]
    return total * n // p


def scattered(p, n, peer):
    """A reduce-scatter by halving, with its fold."""
    kept, fold = halved_chunks(p, n, peer), p & (p - 1) != 0
    return p.bit_length() - 1 + 2 * fold, kept + fold * (n + n // p), kept + fold * n


def rabenseifner(p, n):
    steps, fold = p.bit_length() - 1, p & (p - 1) != 0
    return 2 * steps + 2 * fold, 2 * halved(p, n) + 2 * fold * n, halved(p, n) + fold * n


def rabenseifner_reduce(p, n):
    """The first rank, if it is the root, gets back all but its own part."""
    steps, fold = p.bit_length() - 1, p & (p - 1) != 0
    own = -(-n // 8 >> steps) * 8
    return 2 * steps + fold, halved(p, n) + n - own + fold * n, halved(p, n) + fold * n


def two_trees(p, n, s, one_root, reduces=False):
    """All steps, each with the longest segment of a half, in elements of 8 bytes."""
    steps, longest = max(edge.step for edge in double_tree.edges(p, one_root)) + 2 * s - 1, -(-n // (16 * s)) * 8
    return steps, steps * longest, reduces * steps * longest


def two_trees_twice(p, n, s):
    alphas, betas, gammas = two_trees(p, n, s, False, reduces=True)
    return 2 * alphas, 2 * betas, gammas


def swinging(rank, step, q):
    distance = [1, -1, 3, -5, 11, -21, 43, -85, 171][step]
    return (rank + distance * (-1) ** rank) % q


TIMES = {
    ("broadcast", "linear"): lambda p, n: (p - 1, (p - 1) * n, 0),
    ("broadcast", "scatter_allgather"): lambda p, n: (lg(p) + p - 1, 2 * share(p, n), 0),
    ("broadcast", "tree"): lambda p, n: (lg(p), lg(p) * n, 0),
    ("broadcast", "ring"): lambda p, n, s: (p - 2 + s, (p - 2 + s) * n // s, 0),
    ("reduce", "linear"): lambda p, n: (p - 1, (p - 1) * n, (p - 1) * n),
    ("reduce", "tree"): lambda p, n: (lg(p), lg(p) * n, lg(p) * n),
    ("reduce", "ring"): lambda p, n, s: (p - 2 + s, (p - 2 + s) * n // s, (p - 2 + s) * n // s),
    ("reduce_scatter", "ring"): lambda p, n, s: (s * (p - 1), share(p, n), share(p, n)),
    ("reduce_scatter", "pairwise"): lambda p, n: (p - 1, share(p, n), share(p, n)),
    ("reduce_scatter", "pat"): lambda p, n: (lg(p), share(p, n), share(p, n)),
    ("allgather", "pat"): lambda p, n: (lg(p), share(p, n), 0),
    ("allgather", "bruck"): lambda p, n: (lg(p), share(p, n), 0),
    ("allgather", "ring"): lambda p, n: (p - 1, share(p, n), 0),
    ("allgather", "pairwise"): lambda p, n: (p - 1, share(p, n), 0),
    ("allreduce", "pairwise"): lambda p, n: (2 * (p - 1), 2 * share(p, n), share(p, n)),
    ("allreduce", "linear"): lambda p, n: (2 * (p - 1), 2 * (p - 1) * n, (p - 1) * n),
    ("allreduce", "exchange"): lambda p, n: (p - 1, (p - 1) * n, (p - 1) * n),
    ("allreduce", "tree"): lambda p, n: (2 * lg(p), 2 * lg(p) * n, lg(p) * n),
    ("allreduce", "recursive_doubling"): folded,
    ("allreduce", "ring"): lambda p, n, s: ((s + 1) * (p - 1), 2 * share(p, n), share(p, n)),
    ("alltoall", "pairwise"): lambda p, n: (p - 1, share(p, n), 0),
    ("alltoall", "bruck"): lambda p, n: (lg(p), n // p * sum(i.bit_count() for i in range(p)), 0),
    ("gather", "tree"): lambda p, n: (lg(p), share(p, n), 0),
    ("scatter", "tree"): lambda p, n: (lg(p), share(p, n), 0),
    ("gather", "linear"): lambda p, n: (p - 1, share(p, n), 0),
    ("scatter", "linear"): lambda p, n: (p - 1, share(p, n), 0),
    ("barrier", "recursive_doubling"): lambda p, n: folded(p, 0),
    ("broadcast", "circulant"): lambda p, n, s: (s - 1 + lg(p), (s - 1 + lg(p)) * n // s, 0),
    ("reduce_scatter", "circulant"): lambda p, n: (lg(p), share(p, n), share(p, n)),
    ("allgather", "circulant"): lambda p, n: (lg(p), share(p, n), 0),
    ("allreduce", "circulant"): lambda p, n: (2 * lg(p), 2 * share(p, n), share(p, n)),
    ("allreduce", "recursive_halving"): rabenseifner,
    ("reduce", "recursive_halving"): rabenseifner_reduce,
    ("reduce_scatter", "recursive_halving"): lambda p, n: scattered(p, n, lambda rank, k, q: rank ^ q >> (k + 1)),
    ("allreduce", "swing"): rabenseifner,
    ("reduce_scatter", "swing"): lambda p, n: scattered(p, n, swinging),
    ("allgather", "recursive_doubling"): lambda p, n: (*scattered(p, n, lambda rank, k, q: rank ^ q >> (k + 1))[:2], 0),
    ("allgather", "swing"): lambda p, n: (*scattered(p, n, swinging)[:2], 0),
    ("barrier", "dissemination"): lambda p, n: (lg(p), 0, 0),
    ("broadcast", "double_tree"): lambda p, n, s: two_trees(p, n, s, True),
    ("reduce", "double_tree"): lambda p, n, s: two_trees(p, n, s, True, reduces=True),
    ("allreduce", "double_tree"): two_trees_twice,
    # hierarchical, of one node
    ("broadcast", "hierarchical"): lambda p, n: (p - 1, (p - 1) * n, 0),
    ("reduce_scatter", "hierarchical"): lambda p, n: (2 * (p - 1), share(p, n), share(p, n)),
    ("allgather", "hierarchical"): lambda p, n: (p - 1, share(p, n), 0),
    ("allreduce", "hierarchical"): lambda p, n: (3 * (p - 1), 2 * share(p, n), share(p, n)),
}
ALPHA, BETA, GAMMA = 10**12, 10**6 + 3, 17  # integers, so that times can be equal


@each_algorithm
@pytest.mark.parametrize("p", [*SIZES, 100, 1000])
def test_predicted_times_are_those_of_the_literature(collective, algorithm, p):
    form, n = TIMES[collective, algorithm], 12 * 8 * p
    for segments in (2, 3, 4) if len(inspect.signature(form).parameters) == 3 else (None,):
        alphas, betas, gammas = form(p, n) if segments is None else form(p, n, segments)
        options = {"segments": segments} if segments else {}
        predicted = cost.predict(collective, algorithm, [12] * p, 8, ALPHA, BETA, GAMMA, **options)
        assert predicted == alphas * ALPHA + betas * BETA + gammas * GAMMA


@each_algorithm
def test_one_rank_takes_no_time(collective, algorithm):
    assert cost.predict(collective, algorithm, [12], 8, ALPHA, BETA, GAMMA) == 0


@pytest.mark.parametrize("p", [2, 4, 8, 16, 64])
def test_for_powers_of_two_halving_and_swing_send_as_little_as_the_ring_in_lg_p_rounds(p):
    for algorithm in "recursive_halving", "swing":
        assert TIMES["reduce_scatter", algorithm](p, 96 * p) == (lg(p), share(p, 96 * p), share(p, 96 * p))
        assert TIMES["allreduce", algorithm](p, 96 * p) == (2 * lg(p), 2 * share(p, 96 * p), share(p, 96 * p))


@pytest.mark.parametrize("collective", ["reduce_scatter", "reduce", "allreduce"])
def test_near_first_costs_what_far_first_does(collective):
    for p in range(1, 18):
        for counts in [6] * p, [5 * rank % 7 for rank in range(p)]:
            near = costs(collective, "recursive_halving", counts, near=True)
            assert near == counted(collective, "recursive_halving", counts, near=True)
            if p & (p - 1) == 0 and counts[0] == 6:
                assert sorted(near) == sorted(costs(collective, "recursive_halving", counts))


def test_a_broadcast_on_a_circulant_graph_takes_segments_minus_1_and_lg_p_rounds():
    for p in range(1, 20):
        for segments in 1, 2, 5, 8:
            counts = [3 + (rank == 1) for rank in range(p)]
            expected = counted("broadcast", "circulant", counts, root=p // 2, segments=segments)
            assert costs("broadcast", "circulant", counts, root=p // 2, segments=segments) == expected
            assert expected[p // 2].rounds == (segments - 1 + lg(p) if p > 1 else 0)


def test_a_ring_of_one_segment_takes_p_minus_1_transfers():
    for collective, reduced in ("broadcast", 0), ("reduce", 7 * 64):
        predicted = cost.predict(collective, "ring", [1] * 8, 8, ALPHA, BETA, GAMMA, segments=1)
        assert predicted == 7 * ALPHA + 7 * 64 * BETA + reduced * GAMMA


@each_algorithm
def test_the_busiest_of_many_ranks_is_among_those_looked_at(collective, algorithm):
    if cost._form(collective, algorithm, "_path") or algorithm == "pat":
        return
    for p in 65, 90, 128:
        for count, root in (0, 3), (p + 7, 0), (3 * p - 1, p // 2), (5 * p, p - 1):
            for unit in (1, 0, 0), (0, 1, 0), (0, 0, 1), (ALPHA, BETA, GAMMA):
                ranks = costs(collective, algorithm, even(count, p), root=root)
                predicted = cost.predict(collective, algorithm, even(count, p), 8, *unit, root=root)
                assert predicted == max(cost.time(rank, *unit) for rank in ranks)


@pytest.mark.parametrize("collective", ["allgather", "reduce_scatter"])
@pytest.mark.parametrize("aggregate", [None, 1, 4])
def test_of_many_ranks_of_pat_one_may_be_busier_by_an_element(collective, aggregate):
    for p in 65, 90, 128:
        for count in p + 7, p + p // 2:
            ranks = costs(collective, "pat", even(count, p), aggregate=aggregate)
            predicted = cost.predict(collective, "pat", even(count, p), 8, 0, 1, 0, aggregate=aggregate)
            assert 0 <= max(rank.port_bytes for rank in ranks) - predicted <= 8


def test_large_chunks_are_cut_into_segments_of_a_quarter_mebibyte():
    assert cost.of("reduce_scatter", "ring", 0, [1 << 20] * 4, 4).rounds == 3 * 16
    assert cost.of("reduce_scatter", "ring", 0, [(1 << 20) + 1] * 4, 4).rounds == 3 * 17


def test_busbw_factors_are_those_of_nccl_tests():
    assert cost.busbw_factor("allreduce", 4) == Fraction(6, 4)
    for collective in "reduce_scatter", "allgather", "alltoall", "gather", "scatter":
        assert cost.busbw_factor(collective, 4) == Fraction(3, 4)
    for collective in "broadcast", "reduce", "sendrecv":
        assert cost.busbw_factor(collective, 4) == 1
