"""Whatever the size, counts, root, options and order of steps: every algorithm is proven, and costs what it states."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mpicoll import cost
from mpicoll.algorithms import FAMILIES, SAME_LENGTH
from mpicoll.world import prove

SEGMENTED = {("allreduce", "ring"): 2, ("reduce_scatter", "ring"): 2, ("broadcast", "ring"): 1, ("reduce", "ring"): 1}

each_algorithm = pytest.mark.parametrize(
    ("collective", "algorithm"), [(collective, name) for collective, family in FAMILIES.items() for name in family]
)
deterministic = settings(derandomize=True, deadline=None, database=None, max_examples=100)


def rows(size):
    return st.lists(st.integers(0, 9), min_size=size, max_size=size)


@st.composite
def calls(draw, collective, algorithm):
    """The arguments of `prove` for a random call; the counts are as uneven as they like."""
    size = draw(st.integers(1, 9))
    same = (collective, algorithm) in SAME_LENGTH
    matrix = collective == "alltoall" and not same and draw(st.booleans())
    call = {
        "size": size,
        "counts": draw(st.lists(rows(size), min_size=size, max_size=size) if matrix else rows(size)),
        "root": draw(st.integers(0, size - 1)),
        "in_place": draw(st.booleans()),
        "seed": draw(st.none() | st.integers(0, 1 << 32)),
    }
    least = SEGMENTED.get((collective, algorithm))
    if least and draw(st.booleans()):
        call["segments"] = draw(st.integers(least, 6))
    if same:
        call["counts"] = call["counts"][:1] * size
    if algorithm == "pat" and draw(st.booleans()):
        call["aggregate"] = draw(st.integers(1, 6))
    return call


def shared(call):
    """Those arguments that `cost` knows, too."""
    return {name: call[name] for name in ("counts", "root", "segments", "aggregate") if name in call}


@each_algorithm
def test_any_call_is_right_and_costs_what_is_stated(collective, algorithm):
    @deterministic
    @given(calls(collective, algorithm))
    def check(call):
        proof = prove(collective, algorithm, **call)
        for rank, counts in enumerate(proof.counts):
            assert cost.of(collective, algorithm, rank, itemsize=8, **shared(call)) == cost.Cost(**vars(counts))

    check()


@each_algorithm
def test_no_rank_is_busy_for_longer_than_is_predicted(collective, algorithm):
    @deterministic
    @given(calls(collective, algorithm), st.tuples(*[st.integers(0, 1000)] * 3))
    def check(call, links):
        alpha, beta, gamma = links
        if (collective, algorithm) == ("reduce", "recursive_halving"):
            call["root"] = 0  # the prediction's; with another one a rank may be busier by an element
        predicted = cost.predict(collective, algorithm, itemsize=8, alpha=alpha, beta=beta, gamma=gamma, **shared(call))
        for rank in range(call["size"]):
            assert cost.time(cost.of(collective, algorithm, rank, itemsize=8, **shared(call)), *links) <= predicted

    check()
