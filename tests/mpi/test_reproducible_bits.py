"""The sums of gradients, and what is trained, have the same bits on every number of ranks that is a power of two."""

import numpy as np
import pytest
from ml_dtypes import bfloat16
from mpi4py import MPI

import mpicoll
from mpicoll.training import loop
from mpicoll.training.buckets import MIB
from mpicoll.training.data import Text
from mpicoll.training.ddp import DistributedDataParallel
from mpicoll.training.fixed_order import NEAR_FIRST, Partials
from mpicoll.training.gpt import GPT
from mpicoll.training.layers import Parameter
from mpicoll.training.optimizers import AdamW
from mpicoll.training.reducer import Reducer
from mpicoll.training.sampler import Sampler

pytestmark = pytest.mark.mpi(min_size=1)

SHARDS = 8
COUNTS = 1, 7, 264, 333  # fewer than ranks, and uneven
TINY = 300 / MIB


@pytest.fixture
def full_trees(comm):
    if comm.size not in (1, 2, 4, 8):
        pytest.skip("a power of two")


def gradients(dtype):
    """(shards, count) for every parameter, the same on all ranks, of very different magnitudes."""
    rng, wide = np.random.default_rng(5), 3 if dtype == np.float16 else 12
    for count in COUNTS:
        shape = SHARDS, count
        yield (rng.standard_normal(shape) * 10.0 ** rng.integers(-wide, wide, shape)).astype(dtype)


def tree(terms):
    while len(terms) > 1:
        terms = [a + b for a, b in zip(terms[::2], terms[1::2], strict=True)]
    return terms[0]


def reduced(comm, dtype, **options):
    """What a reducer makes of the shards' gradients."""
    ps = [Parameter(f"p{count}", np.zeros(count, dtype)) for count in COUNTS]
    made = Reducer(comm, ps, TINY, TINY, TINY, reproducible=True, **options)
    assert len(made.buckets) > 1
    share = SHARDS // comm.size
    for _ in range(2):
        made.zero_grad()
        for i in range(share):
            for p, shards in reversed(list(zip(ps, gradients(dtype), strict=True))):
                p.grad += shards[comm.rank * share + i]
                if i < share - 1:
                    with made.no_sync():
                        made.mark_ready(p)
                else:
                    made.mark_ready(p)
        made.finish()
    return made, [p.grad for p in ps]


def differ(comm, grads, dtype):
    """Whether some bit on some rank is not that of the tree in one process."""
    pairs = zip(grads, gradients(dtype), strict=True)
    wrong = any(grad.tobytes() != tree(list(shards)).tobytes() for grad, shards in pairs)
    return comm.allreduce(np.array([int(wrong)]), op="max")[0]


@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, bfloat16])
def test_the_sums_are_those_of_one_process(comm, full_trees, dtype, overlap):
    made, grads = reduced(comm, dtype, overlap=overlap)
    assert not differ(comm, grads, dtype)
    assert made.bytes_sent == made.formula_bytes()
    assert (made.bytes_sent > 0) == (comm.size > 1)


def test_micro_batches_added_in_sequence_are_noticed(comm, full_trees, monkeypatch):
    def keep(self, parameter):
        self.sums[parameter] = [parameter.grad + (self.sums[parameter] or [0])[0]]
        self.counts[parameter] += 1
        parameter.grad.fill(0)

    def close(self, parameter):
        parameter.grad += (self.sums[parameter] or [0])[0]
        self.sums[parameter] = []

    monkeypatch.setattr(Partials, "keep", keep)
    monkeypatch.setattr(Partials, "close", close)
    _, grads = reduced(comm, np.float32)
    assert differ(comm, grads, np.float32) == (comm.size <= SHARDS // 4)  # of two, there is one order only


def test_ranks_added_far_first_are_noticed(comm, full_trees, monkeypatch):
    monkeypatch.setitem(NEAR_FIRST.keywords, "near", False)
    _, grads = reduced(comm, np.float32)
    assert differ(comm, grads, np.float32) == (comm.size >= 4)


def test_an_algorithm_may_be_passed_itself(comm, monkeypatch):
    x = np.arange(13.0) + comm.rank
    plan = comm.allreduce_init(x, op="sum", algorithm=NEAR_FIRST)
    plan.start()
    total = comm.size * np.arange(13.0) + sum(range(comm.size))
    for result in (
        comm.allreduce(x, algorithm=NEAR_FIRST),
        comm.iallreduce(x, algorithm=NEAR_FIRST).wait(),
        plan.wait(),
    ):
        assert (result == total).all()
    plan.free()
    monkeypatch.setenv("MPICOLL_DEBUG", "1")
    with mpicoll.Communicator(MPI.COMM_WORLD) as checked:  # compares what the ranks say of it
        assert (checked.allreduce(x, algorithm=NEAR_FIRST) == total).all()


def test_numbers_of_ranks_without_a_full_tree_are_an_error_on_every_rank(comm):
    if not comm.size & (comm.size - 1):
        pytest.skip("no power of two")
    below = 1 << comm.size.bit_length() - 1
    with pytest.raises(ValueError, match=f"{comm.size} ranks make no full binary tree; {below} or {2 * below} would"):
        Reducer(comm, [], reproducible=True)


TEXT = Text(b"the quick brown fox jumps over the lazy dog; " * 30, context=5)


def trained(comm, steps=11, **options):
    """The parameters, losses and evaluation of a run on these ranks."""
    net = DistributedDataParallel(GPT(TEXT.classes, 5, 8, 2, 1), comm, reproducible=True, **options)
    sampler = Sampler(len(TEXT.train), 40, comm.rank, comm.size, seed=3, micro_batch=40 // SHARDS)
    optimizer = AdamW(net.parameters, lr=1.0)
    records = list(loop.train(comm, net, optimizer, TEXT.train, sampler, steps, lambda step: 0.01, limit=0.5))
    numbers = [(record["loss"], record["gradient_norm"]) for record in records]
    return [p.data.tobytes() for p in net.parameters], numbers, loop.evaluate(comm, net, TEXT.held_out[:53], batch=5)


@pytest.mark.parametrize("options", [{}, {"overlap": False}, {"bucket_cap_mb": 1 / MIB}, {"rebuild_buckets": True}])
def test_a_run_is_bit_for_bit_that_of_one_process(comm, full_trees, options):
    with mpicoll.Communicator(MPI.COMM_SELF) as alone:
        expected = trained(alone)
    got = trained(comm, **options)
    for found, wanted in zip(got, expected, strict=True):
        assert found == wanted
