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


def costs(collective, algorithm, counts, itemsize=8, **options):
    return [cost.of(collective, algorithm, rank, counts, itemsize, **options) for rank in range(len(counts))]


def counted(collective, algorithm, counts, **options):
    proof = prove(collective, algorithm, len(counts), counts=counts, **options)
    return [cost.Cost(**vars(counts)) for counts in proof.counts]


@each_algorithm
def test_the_closed_form_is_what_the_world_counts(collective, algorithm):
    for size in [*range(1, 14), 16, 17, 32, 33]:
        for count in {0, 1, size + 1, 37}:
            for root in {0, size // 2, size - 1} if collective in ("broadcast", "reduce") else {0}:
                counts = even(count, size)
                expected = counted(collective, algorithm, counts, root=root, in_place=count % 2 == 1)
                assert costs(collective, algorithm, counts, root=root) == expected


@pytest.mark.parametrize("collective", ["reduce_scatter", "allgather", "allreduce"])
def test_it_also_is_for_uneven_counts(collective):
    for algorithm in FAMILIES[collective]:
        for size in range(1, 10):
            counts = [5 * rank % 7 for rank in range(size)]
            assert costs(collective, algorithm, counts) == counted(collective, algorithm, counts)


def test_options_of_the_algorithm_count():
    for segments in 2, 3, 4:
        counts = [3] * 5
        expected = counted("allreduce", "ring", counts, segments=segments)
        assert costs("allreduce", "ring", counts, segments=segments) == expected


SIZES = [2, 3, 4, 7, 8, 16, 60]


def even_costs(collective, algorithm, p, **options):
    """n bytes, cut evenly, and the costs of all ranks."""
    return 6 * 8 * p, costs(collective, algorithm, [6] * p, **options)


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
    assert sum(rank.sent for rank in ranks) == (p - 1) * n
    n, ranks = even_costs("reduce", "tree", p, root=root)
    assert ranks[root] == (depth, 0, 0, depth * n)
    assert sum(rank.reduced for rank in ranks) == (p - 1) * n


def test_large_chunks_are_cut_into_segments_of_a_quarter_mebibyte():
    assert cost.of("reduce_scatter", "ring", 0, [1 << 20] * 4, 4).rounds == 3 * 16
    assert cost.of("reduce_scatter", "ring", 0, [(1 << 20) + 1] * 4, 4).rounds == 3 * 17


def test_busbw_factors_are_those_of_nccl_tests():
    assert cost.busbw_factor("allreduce", 4) == Fraction(6, 4)
    for collective in "reduce_scatter", "allgather", "alltoall", "gather", "scatter":
        assert cost.busbw_factor(collective, 4) == Fraction(3, 4)
    for collective in "broadcast", "reduce", "sendrecv":
        assert cost.busbw_factor(collective, 4) == 1
