"""The closed forms: equal to what the world counts, and to the literature's where the size divides the count."""

from fractions import Fraction

import pytest

from mpicoll import cost
from mpicoll.algorithms import FAMILIES
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


@each_algorithm
def test_the_closed_form_is_what_the_world_counts(collective, algorithm):
    for size in [*range(1, 14), 16, 17, 32, 33]:
        for count in {0, 1, size + 1, 37}:
            for root in {0, size // 2, size - 1} if collective in ROOTED else {0}:
                counts = even(count, size)
                expected = counted(collective, algorithm, counts, root=root, in_place=count % 2 == 1)
                assert costs(collective, algorithm, counts, root=root) == expected


@each_algorithm
def test_it_also_is_for_uneven_counts(collective, algorithm):
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


TIMES = {
    ("broadcast", "linear"): lambda p, n: (p - 1, (p - 1) * n, 0),
    ("broadcast", "tree"): lambda p, n: (lg(p), lg(p) * n, 0),
    ("broadcast", "ring"): lambda p, n, s: (p - 2 + s, (p - 2 + s) * n // s, 0),
    ("reduce", "linear"): lambda p, n: (p - 1, (p - 1) * n, (p - 1) * n),
    ("reduce", "tree"): lambda p, n: (lg(p), lg(p) * n, lg(p) * n),
    ("reduce", "ring"): lambda p, n, s: (p - 2 + s, (p - 2 + s) * n // s, (p - 2 + s) * n // s),
    ("reduce_scatter", "ring"): lambda p, n, s: (s * (p - 1), share(p, n), share(p, n)),
    ("reduce_scatter", "pairwise"): lambda p, n: (p - 1, share(p, n), share(p, n)),
    ("allgather", "ring"): lambda p, n: (p - 1, share(p, n), 0),
    ("allreduce", "linear"): lambda p, n: (2 * (p - 1), 2 * (p - 1) * n, (p - 1) * n),
    ("allreduce", "exchange"): lambda p, n: (p - 1, (p - 1) * n, (p - 1) * n),
    ("allreduce", "tree"): lambda p, n: (2 * lg(p), 2 * lg(p) * n, lg(p) * n),
    ("allreduce", "recursive_doubling"): folded,
    ("allreduce", "ring"): lambda p, n, s: ((s + 1) * (p - 1), 2 * share(p, n), share(p, n)),
    ("alltoall", "pairwise"): lambda p, n: (p - 1, share(p, n), 0),
    ("gather", "linear"): lambda p, n: (p - 1, share(p, n), 0),
    ("scatter", "linear"): lambda p, n: (p - 1, share(p, n), 0),
    ("barrier", "recursive_doubling"): lambda p, n: folded(p, 0),
}
ALPHA, BETA, GAMMA = 10**12, 10**6 + 3, 17  # integers, so that times can be equal


@each_algorithm
@pytest.mark.parametrize("p", [*SIZES, 100, 1000])
def test_predicted_times_are_those_of_the_literature(collective, algorithm, p):
    form, n = TIMES[collective, algorithm], 12 * 8 * p
    for segments in (2, 3, 4) if algorithm == "ring" and collective != "allgather" else (None,):
        alphas, betas, gammas = form(p, n) if segments is None else form(p, n, segments)
        options = {"segments": segments} if segments else {}
        predicted = cost.predict(collective, algorithm, [12] * p, 8, ALPHA, BETA, GAMMA, **options)
        assert predicted == alphas * ALPHA + betas * BETA + gammas * GAMMA


@each_algorithm
def test_one_rank_takes_no_time(collective, algorithm):
    assert cost.predict(collective, algorithm, [12], 8, ALPHA, BETA, GAMMA) == 0


def test_a_ring_of_one_segment_takes_p_minus_1_transfers():
    for collective, reduced in ("broadcast", 0), ("reduce", 7 * 64):
        predicted = cost.predict(collective, "ring", [1] * 8, 8, ALPHA, BETA, GAMMA, segments=1)
        assert predicted == 7 * ALPHA + 7 * 64 * BETA + reduced * GAMMA


@each_algorithm
def test_the_busiest_of_many_ranks_is_among_those_looked_at(collective, algorithm):
    if cost._form(collective, algorithm, "_path"):
        return
    for p in 65, 90, 128:
        for count, root in (0, 3), (p + 7, 0), (3 * p - 1, p // 2), (5 * p, p - 1):
            for unit in (1, 0, 0), (0, 1, 0), (0, 0, 1), (ALPHA, BETA, GAMMA):
                ranks = costs(collective, algorithm, even(count, p), root=root)
                predicted = cost.predict(collective, algorithm, even(count, p), 8, *unit, root=root)
                assert predicted == max(cost.time(rank, *unit) for rank in ranks)


def test_large_chunks_are_cut_into_segments_of_a_quarter_mebibyte():
    assert cost.of("reduce_scatter", "ring", 0, [1 << 20] * 4, 4).rounds == 3 * 16
    assert cost.of("reduce_scatter", "ring", 0, [(1 << 20) + 1] * 4, 4).rounds == 3 * 17


def test_busbw_factors_are_those_of_nccl_tests():
    assert cost.busbw_factor("allreduce", 4) == Fraction(6, 4)
    for collective in "reduce_scatter", "allgather", "alltoall", "gather", "scatter":
        assert cost.busbw_factor(collective, 4) == Fraction(3, 4)
    for collective in "broadcast", "reduce", "sendrecv":
        assert cost.busbw_factor(collective, 4) == 1
