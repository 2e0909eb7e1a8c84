"""Exchanges over MPI: 16 bits on the wire, a parameter server, and bytes that are those of the formula."""

import numpy as np
import pytest
from ml_dtypes import bfloat16

from mpicoll.training import wire
from mpicoll.training.buckets import MIB
from mpicoll.training.ddp import DistributedDataParallel
from mpicoll.training.exchanges import AllReduce, Nothing
from mpicoll.training.gpt import GPT
from mpicoll.training.layer_drop import LayerDrop
from mpicoll.training.layers import Parameter
from mpicoll.training.losses import cross_entropy
from mpicoll.training.optimizers import SGD
from mpicoll.training.parameter_server import ParameterServer
from mpicoll.training.reducer import Reducer
from mpicoll.training.replicas import first_difference
from mpicoll.training.wire import Wire

pytestmark = [pytest.mark.mpi(min_size=2), pytest.mark.ranks(range(4))]


COUNTS = 1, 7, 64, 1000  # fewer than ranks, and uneven
TINY = 200 / MIB


def parameters(dtype=np.float32):
    return [Parameter(f"p{n}", np.zeros(n, dtype)) for n in COUNTS]


def steps(comm, exchange, gradient, count=1, dtype=np.float32):
    """The reducer and the sums of the averages of gradient(rank, step, length) over `count` steps."""
    ps = parameters(dtype)
    reducer = Reducer(comm, ps, TINY, TINY, exchange=exchange)
    assert len(reducer.buckets) > 1
    sums = [np.zeros(n) for n in COUNTS]
    for step in range(count):
        reducer.zero_grad()
        for p in reversed(ps):
            p.grad += gradient(comm.rank, step, p.data.size)
            reducer.mark_ready(p)
        reducer.finish()
        for total, p in zip(sums, ps, strict=True):
            total += p.grad
        for p in ps:
            everyone = comm.allgather(p.grad).reshape(comm.size, -1)
            assert (everyone == everyone[0]).all(), p
    return reducer, sums


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("of", [np.float32, np.float64, np.float16])
def test_what_16_bits_hold_arrives_exactly(comm, dtype, of):
    def gradient(rank, step, n):
        return (np.arange(n) % 8 * comm.size + rank * 2 * comm.size).astype(of)

    reducer, sums = steps(comm, Wire(dtype), gradient, dtype=of)
    for n, total in zip(COUNTS, sums, strict=True):
        assert total.tolist() == [i % 8 * comm.size + comm.size * (comm.size - 1) for i in range(n)]
    assert not any(bucket.kept.error.any() for bucket in reducer.buckets)


def check_feedback(comm, dtype):
    """The same gradients 64 times: each average is wrong by a rounding error, their sum by no more than one step's."""

    def gradient(rank, step, n):
        return np.random.default_rng([rank, n]).random(n, np.float32)

    _, sums = steps(comm, Wire(dtype), gradient, 64)
    for n, total in zip(COUNTS, sums, strict=True):
        mean = sum(gradient(rank, 0, n).astype(float) for rank in range(comm.size)) / comm.size
        assert abs(total - 64 * mean).max() < {"float16": 2**-9, "bfloat16": 2**-6}[dtype]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_rounding_errors_do_not_add_up(comm, dtype):
    check_feedback(comm, dtype)


@pytest.mark.parametrize("forgotten", ["_round", "_average"])
def test_the_check_finds_errors_that_are_forgotten(comm, monkeypatch, forgotten):
    right = getattr(wire, forgotten)

    def planted(*arguments):
        right(*arguments)
        arguments[2].fill(0)

    monkeypatch.setattr(wire, forgotten, planted)
    with pytest.raises(AssertionError):
        check_feedback(comm, "bfloat16")


def check_sums(comm):
    """To a large gradient the others' are nothing one by one in bfloat16, and something all together."""
    ps = [Parameter("p", np.zeros(1000, np.float32))]
    reducer = Reducer(comm, ps, exchange=Wire("bfloat16"))
    ps[0].grad += 1.75 if comm.rank else 256 * comm.size
    reducer.mark_ready(ps[0])
    reducer.finish()
    expected = np.float32((256 * comm.size + 1.75 * (comm.size - 1)) / comm.size).astype(bfloat16)
    assert expected == (256 if comm.size == 2 else 258)
    assert (ps[0].grad == expected).all()


def test_sums_are_rounded_once(comm):
    check_sums(comm)


def test_the_check_finds_sums_in_16_bits(comm, monkeypatch):
    def planted(received, own, error):
        total = received[0].copy()
        for part in received[1:]:
            total += part
        own[...] = total / len(received)

    if comm.size == 2:
        pytest.skip("a sum of two is rounded once in any way")
    monkeypatch.setattr(wire, "_average", planted)
    with pytest.raises(AssertionError):
        check_sums(comm)


def test_one_bad_step_does_not_spoil_the_next(comm):
    ps = [Parameter("p", np.zeros(5, np.float32))]
    reducer = Reducer(comm, ps, exchange=Wire("float16"), check_finite=True)
    ps[0].grad += 1e6 if comm.rank else 0  # beyond float16
    reducer.mark_ready(ps[0])
    with pytest.raises(FloatingPointError, match="finite, but these averages are not finite: p on"):
        reducer.finish()
    reducer.zero_grad()
    ps[0].grad += 2
    reducer.mark_ready(ps[0])
    reducer.finish()
    assert (ps[0].grad == 2).all()


def test_a_gradient_that_is_not_finite_is_named_with_its_rank(comm):
    ps = parameters()
    reducer = Reducer(comm, ps, TINY, TINY, check_finite=True)
    if comm.rank == 1:
        ps[2].grad[5] = np.inf
    for p in ps:
        reducer.mark_ready(p)
    with pytest.raises(FloatingPointError, match=r"p64 on rank\(s\) 1$"):
        reducer.finish()


@pytest.mark.parametrize(
    "exchange", [AllReduce(), AllReduce("ring"), Nothing(), Wire("float16"), ParameterServer(), ParameterServer(1)]
)
def test_bytes_are_those_of_the_formula(comm, exchange):
    ps = parameters()
    reducer = Reducer(comm, ps, TINY, TINY, exchange=exchange)
    for p in ps:
        reducer.mark_ready(p)
    reducer.finish()
    if isinstance(exchange, ParameterServer):
        reducer.parameters = ps
        exchange.optimizer(reducer, lambda mine: SGD(mine, 1.0)).step()
    assert reducer.bytes_sent == reducer.formula_bytes()


def test_unused_parameters_are_averaged_and_counted(comm):
    ps = parameters()
    reducer = Reducer(comm, ps, TINY, TINY, find_unused_parameters=True)
    for p in ps:
        p.grad[...] = 0.1
    mine = ps[: comm.rank + 1]  # the last one, by a world of more ranks only
    reducer.report_used(mine)
    for p in mine:
        p.grad += comm.size
        reducer.mark_ready(p)
    reducer.finish()
    for i, p in enumerate(ps):
        users = comm.size - i
        if users > 0:
            np.testing.assert_allclose(p.grad, 0.1 + users, rtol=1e-6)
        else:
            assert (p.grad == np.float32(0.1)).all()
    assert reducer.unused == ps[comm.size :]
    assert reducer.bytes_sent == reducer.formula_bytes()


VOCABULARY, CONTEXT, BATCH = 7, 6, 3


def gpt():
    return GPT(VOCABULARY, CONTEXT, width=8, layers=3, heads=2, dtype=np.float64)


def forward_backward(model, rank, step):
    tokens = np.random.default_rng([rank, step]).integers(VOCABULARY, size=(BATCH, CONTEXT + 1))
    _, grad = cross_entropy(model.forward(tokens[:, :-1]), tokens[:, 1:], divisor=BATCH)
    model.backward(grad)


def test_layers_dropped_differently_on_each_rank_give_the_average_of_what_each_rank_had(comm):
    ddp = DistributedDataParallel(
        LayerDrop(gpt(), 0.5, seed=1, rank=comm.rank), comm, TINY, TINY, find_unused_parameters=True
    )
    alone = [LayerDrop(gpt(), 0.5, seed=1, rank=r) for r in range(comm.size)]
    different = nobody = 0
    for step in range(4):
        ddp.zero_grad()
        forward_backward(ddp, comm.rank, step)
        for rank, model in enumerate(alone):
            for p in model.parameters:
                p.grad.fill(0)
            forward_backward(model, rank, step)
        for i, p in enumerate(ddp.parameters):
            expected = sum(model.parameters[i].grad for model in alone) / comm.size
            np.testing.assert_allclose(p.grad, expected, rtol=1e-10, atol=1e-15, err_msg=p.name)
        used = [{p.name for p in model.used} for model in alone]
        different += used[0] != used[1]
        assert [p.name for p in ddp.unused] == [p.name for p in ddp.parameters if not any(p.name in u for u in used)]
        nobody += len(ddp.unused)
    assert different
    assert nobody or comm.size > 2


def test_a_model_without_residual_layers_cannot_drop_any(comm):
    with pytest.raises(ValueError, match="Sequential has no Residual layers"):
        LayerDrop(type("Sequential", (), {"layers": []})(), 0.5)


def test_the_server_alone_holds_the_optimizers_state(comm):
    made, ps, server = [], parameters(np.float64), ParameterServer(1)
    reducer = Reducer(comm, ps, exchange=server)
    reducer.parameters = ps

    def make(mine):
        made.append(comm.rank)
        return SGD(mine, 0.5, momentum=0.0)

    optimizer = server.optimizer(reducer, make)
    assert made == [1] * (comm.rank == 1)
    optimizer.lr = 2.0
    for p in ps:
        p.grad += comm.rank
        reducer.mark_ready(p)
    reducer.finish()
    assert reducer.waits == {"push": reducer.exposed_s}
    optimizer.step()
    for p in ps:
        assert (p.data == -2.0 * (comm.size - 1) / 2).all()
    assert reducer.exposed_s == reducer.waits["push"] + reducer.waits["pull"]
    assert first_difference(comm, ps) is None
    optimizer.zero_grad()
    assert not any(p.grad.any() for p in ps)


def test_other_types_on_the_wire_are_refused():
    with pytest.raises(ValueError, match="dtype is 'float64'; gradients travel as float16 or bfloat16"):
        Wire("float64")
