"""Gradients are added in one order: the tree, who may take part in it, and orders that are noticed."""

from types import SimpleNamespace

import numpy as np
import pytest
from fake_comm import FakeComm, World, ranks

from mpicoll import cost
from mpicoll.algorithms.cut import even
from mpicoll.training import fixed_order, loop, reproducible
from mpicoll.training.exchanges import Nothing
from mpicoll.training.fixed_order import Partials
from mpicoll.training.layers import Parameter
from mpicoll.training.reducer import Reducer
from mpicoll.world import prove


class Term(str):
    """A number of which only the order of additions is known."""

    def __add__(self, other):
        return Term(f"({self!s}+{other!s})")


def tree(terms):
    """Their sum as it has to be."""
    while len(terms) > 1:
        terms = [a + b for a, b in zip(terms[::2], terms[1::2], strict=True)]
    return terms[0]


def accumulated(gradients, kind=Partials):
    """What one rank makes of the gradients of its micro-batches."""
    first = np.array(gradients[0], object if isinstance(gradients[0], Term) else np.float32)
    p = Parameter("p", np.zeros_like(first.reshape(-1)))
    partials = kind([p])
    for gradient in gradients[:-1]:
        p.grad[...] = gradient
        partials.keep(p)
        assert not p.grad.any()
    p.grad[...] = gradients[-1]
    partials.close(p)
    return p.grad


class InSequence(Partials):
    """A planted bug: what is usual."""

    def keep(self, parameter):
        self.sums[parameter] = [parameter.grad + (self.sums[parameter] or [0])[0]]
        parameter.grad.fill(0)

    def close(self, parameter):
        parameter.grad += self.sums[parameter][0]


NUMBERS = 1, 2, 4, 8, 16
RNG = np.random.default_rng(3)
WILD = (RNG.standard_normal((16, 50)) * 10.0 ** RNG.integers(-8, 8, (16, 50))).astype(np.float32)


@pytest.mark.parametrize("number", NUMBERS)
def test_micro_batches_are_added_along_the_tree_lower_ones_first(number):
    terms = [Term(f"g{i}") for i in range(number)]
    assert list(accumulated(terms)) == [tree(terms)]
    assert loop.added(terms) == tree(terms)


@pytest.mark.parametrize("size", NUMBERS)
def test_ranks_go_on_where_micro_batches_end(size):
    """Near-first recursive halving has the tree in every element."""
    text = tree([Term(f"x{rank}") for rank in range(size)]).replace("+", " op ")
    expected = f"= {text[1:-1] if size > 1 else text}, finished"
    for count in 0, 1, size + 3:
        proof = prove("allreduce", "recursive_halving", size, count, in_place=True, near=True)
        for rank in range(size):
            assert all(str(value).endswith(expected) for value in proof.results[rank])
            formula = cost.of("allreduce", "recursive_halving", rank, even(count, size), 8, near=True)
            assert proof.counts[rank].sent == formula.sent


def test_the_tree_is_noticed_to_be_another_one():
    far = str(prove("allreduce", "recursive_halving", 4, 1).results[0][0])
    assert far == "element 0 = (x0 op x2) op (x1 op x3), finished"


@pytest.mark.parametrize("size", NUMBERS)
def test_the_bits_are_the_same_for_every_number_of_ranks(size):
    share = len(WILD) // size
    of_ranks = [accumulated(WILD[share * rank :][:share]) for rank in range(size)]
    assert (tree(of_ranks) == accumulated(WILD)).all()


def test_numbers_added_in_sequence_have_other_bits_and_other_terms():
    alone, of_two = accumulated(WILD, InSequence), [accumulated(WILD[i : i + 8], InSequence) for i in (0, 8)]
    assert (alone != tree(of_two)).any()
    assert (alone != accumulated(WILD)).any()
    terms = [Term(f"g{i}") for i in range(4)]
    assert loop.added(terms) != (terms[0] + terms[1] + terms[2]) + terms[3]


# the reducer


class Alone(FakeComm):
    """A world of one, for sums too."""

    def iallreduce(self, array, out=None, op="sum", algorithm=None):
        assert (op, algorithm) == ("sum", fixed_order.NEAR_FIRST)
        return super().iallreduce(array, array[:], op)

    def explain(self, collective, nbytes, algorithm):
        return SimpleNamespace(algorithm=algorithm)


def reducer(**options):
    ps = [Parameter(f"p{i}", np.zeros(50, np.float32)) for i in range(2)]
    return Reducer(Alone(World(1), 0), ps, reproducible=True, **options), ps


def accumulate(made, ps, gradients):
    """A step whose micro-batches have these gradients."""
    for i, gradient in enumerate(gradients, 1):
        for p in reversed(ps):
            p.grad += gradient
        if i < len(gradients):
            with made.no_sync():
                for p in reversed(ps):
                    made.mark_ready(p)
        else:
            for p in reversed(ps):
                made.mark_ready(p)
            made.finish()


@pytest.mark.parametrize("overlap", [True, False])
def test_a_reducer_adds_micro_batches_along_the_tree_in_every_step(overlap):
    made, ps = reducer(overlap=overlap)
    for gradients in WILD, WILD[::-1], WILD[:1], WILD[:4]:
        made.zero_grad()
        accumulate(made, ps, gradients)
        assert all((p.grad == tree(list(gradients))).all() for p in ps)
        assert made.bytes_sent == made.formula_bytes() == 0


def test_a_step_that_was_given_up_leaves_nothing_behind():
    made, ps = reducer()
    with made.no_sync():
        for p in ps:
            p.grad += 7
            made.mark_ready(p)
    made.zero_grad()
    accumulate(made, ps, WILD[:2])
    assert all((p.grad == WILD[0] + WILD[1]).all() for p in ps)


def test_three_micro_batches_are_an_error_before_anything_is_sent():
    made, ps = reducer()
    with pytest.raises(RuntimeError, match=r"3 micro-batches are no full tree.*a power of two, such as 2 or 4"):
        accumulate(made, ps, WILD[:3])
    assert made.next_bucket == 0
    made.zero_grad()
    accumulate(made, ps, WILD[:4])
    assert all((p.grad == tree(list(WILD[:4]))).all() for p in ps)


def test_a_gradient_marked_in_fewer_micro_batches_is_named():
    made, ps = reducer()
    with made.no_sync():
        made.mark_ready(ps[0])
    with pytest.raises(RuntimeError, match="p1 is in 1 micro-batches and p0 in 2"):
        made.mark_ready(ps[0])


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"algorithm": "ring"}, "an all-reduce of its own, not algorithm='ring'"),
        ({"exchange": Nothing()}, "an all-reduce of its own, not exchange 'nothing'"),
        ({"find_unused_parameters": True}, "pass it without find_unused_parameters"),
    ],
)
def test_what_would_bring_another_order_is_refused(options, told):
    with pytest.raises(ValueError, match=told):
        reducer(**options)


def test_a_number_of_ranks_without_a_full_tree_is_refused():
    def program(comm):
        with pytest.raises(ValueError, match="3 ranks make no full binary tree; 2 or 4 would"):
            Reducer(comm, [], reproducible=True)

    ranks(3, program)


# the command


def arguments(**given):
    unsaid = {
        "reproducible": True, "virtual_ranks": None, "sync": "allreduce", "global_batch": 48, "micro_batch": None,
        "algorithm": None, "wire_dtype": None, "layer_drop": 0, "find_unused_parameters": False,
    }  # fmt: skip
    return SimpleNamespace(**{**unsaid, **given})


def test_a_micro_batch_is_a_shard():
    args = arguments()
    reproducible.complete(args)
    assert (args.virtual_ranks, args.micro_batch) == (8, 6)
    reproducible.complete(args)  # as by --resume
    assert reproducible.words(args).endswith("on 1, 2, 4 or 8 ranks")
    args = arguments(virtual_ranks=1, sync="per-parameter")
    reproducible.complete(args)
    assert (args.micro_batch, reproducible.sizes(args)) == (48, "1 rank")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"virtual_ranks": 6}, "--virtual-ranks 6 is no power of two; 4 or 8 would do"),
        ({"global_batch": 50}, "into 8 equal shards, and its 50 samples.*choose --global-batch 48 or 56"),
        ({"global_batch": 5}, "its 5 samples do not divide so; choose --global-batch 8,"),
        ({"micro_batch": 3}, "--micro-batch 3: with --reproducible it is a shard of 48 / 8 = 6 samples"),
        ({"sync": "parameter-server"}, "excludes --sync parameter-server"),
        ({"algorithm": "ring"}, "excludes --algorithm"),
        ({"wire_dtype": "float16"}, "excludes --wire-dtype"),
        ({"layer_drop": 0.1}, "excludes --layer-drop"),
        ({"find_unused_parameters": True}, "excludes --find-unused-parameters"),
        ({"reproducible": False, "virtual_ranks": 4}, "--virtual-ranks 4 is for --reproducible: add it"),
    ],
)
def test_what_does_not_go_together_is_said(given, told):
    with pytest.raises(ValueError, match=told):
        reproducible.complete(arguments(**given))


@pytest.mark.parametrize(
    ("size", "told"),
    [
        (3, "8 shards do not divide among 3 ranks; 1, 2, 4 or 8 ranks would do$"),
        (16, "1, 2, 4 or 8 ranks would do, or give --virtual-ranks 16 or more"),
    ],
)
def test_ranks_have_as_many_shards(size, told):
    args = arguments()
    reproducible.complete(args)
    reproducible.check_ranks(args, 4)
    with pytest.raises(ValueError, match=told):
        reproducible.check_ranks(args, size)


def test_one_thread_or_an_error(monkeypatch):
    for name in reproducible.THREADS:
        monkeypatch.setenv(name, "1")
    reproducible.one_thread()
    monkeypatch.setenv("MKL_NUM_THREADS", "4")
    with pytest.raises(ValueError, match=r"one thread per rank, and MKL_NUM_THREADS is 4; start with OPENBLAS_NUM_THR"):
        reproducible.one_thread()
    monkeypatch.delenv("MKL_NUM_THREADS")  # NumPy is here already
    with pytest.raises(ValueError, match="NumPy has loaded without MKL_NUM_THREADS=1"):
        reproducible.one_thread()
