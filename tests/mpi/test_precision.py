"""Weights of 16 bits, and batches that the ranks do not divide: the ranks still train as one process does."""

import contextlib
import json

import numpy as np
import pytest
from fake_comm import one_rank

from mpicoll import train
from mpicoll.training import loop, precision
from mpicoll.training.data import Text
from mpicoll.training.ddp import DistributedDataParallel
from mpicoll.training.gpt import GPT
from mpicoll.training.loss_scale import LossScaled
from mpicoll.training.optimizers import AdamW
from mpicoll.training.parameter_server import ParameterServer, WorkersSampler
from mpicoll.training.replicas import first_difference
from mpicoll.training.sampler import Sampler
from mpicoll.training.wire import Wire

pytestmark = [pytest.mark.mpi(min_size=2), pytest.mark.ranks(range(4))]


TEXT = Text(b"the quick brown fox jumps over the lazy dog; " * 20, context=5, predicted=5)
BATCH, STEPS = 50, 5


def trained(comm, model, sampler=Sampler, micro_batch=None, optimizer=AdamW, **options):
    """(model, optimizer, records) after some steps of 50 samples, clipped."""
    model = DistributedDataParallel(model, comm, bucket_cap_mb=1e-3, **options)
    shares = sampler(len(TEXT.train), BATCH, comm.rank, comm.size, 3, micro_batch)

    def make(parameters):
        return optimizer(parameters, lr=0.01)

    served = isinstance(model.exchange, ParameterServer)
    made = model.exchange.optimizer(model, make) if served else make(model.parameters)
    with np.errstate(over="ignore", invalid="ignore"):
        records = list(loop.train(comm, model, made, TEXT.train, shares, STEPS, lambda step: 0.01, 0.5))
    assert first_difference(comm, model.parameters) is None
    return model, made, records


def gpt(dtype=np.float32):
    return GPT(TEXT.classes, 5, 8, 1, 2, seed=1, dtype=dtype)


def check_uneven(comm, **options):
    expected, _, alone = trained(one_rank(), gpt(np.float64))
    model, _, records = trained(comm, gpt(np.float64), **options)
    assert [r["loss"] for r in records] == pytest.approx([r["loss"] for r in alone], rel=1e-12)
    if "exchange" not in options:  # with a parameter server, it alone has the average
        norms = [[r["gradient_norm"] for r in rs] for rs in (records, alone)]
        assert norms[0] == pytest.approx(norms[1], rel=1e-10)
    for p, q in zip(model.parameters, expected.parameters, strict=True):
        np.testing.assert_allclose(p.data, q.data, rtol=1e-8, atol=1e-11, err_msg=p.name)


@pytest.mark.parametrize("micro_batch", [None, 7, 1])
def test_a_batch_that_does_not_divide_trains_what_one_process_trains(comm, micro_batch):
    check_uneven(comm, micro_batch=micro_batch)


def test_so_it_does_among_the_workers_of_a_dedicated_server(comm):
    check_uneven(comm, sampler=WorkersSampler, micro_batch=4, exchange=ParameterServer())


def test_the_comparison_finds_a_mean_of_means(comm):
    class Planted(Sampler):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            self.divisor = self.share

    if BATCH % comm.size:
        with pytest.raises(AssertionError):
            check_uneven(comm, sampler=Planted)


@pytest.mark.parametrize("name", ["mixed", "mixed-float16"])
@pytest.mark.parametrize("exchange", [None, Wire("bfloat16"), ParameterServer()])
def test_replicas_of_16_bits_stay_alike_and_learn_as_in_float32(comm, name, exchange):
    _, _, single = trained(comm, gpt())
    model, _, half = trained(comm, precision.rounded(gpt(), name), micro_batch=9, exchange=exchange)
    assert {p.data.dtype.name for p in model.parameters} == {precision.TYPES[name]}
    assert [r["loss"] for r in half] == pytest.approx([r["loss"] for r in single], rel=0.02)
    assert model.bytes_sent == model.formula_bytes()


class Overflowing(GPT):
    """Its gradient is not finite on the last rank, in the third step."""

    def __init__(self, comm, *arguments):
        super().__init__(*arguments, seed=1)
        self.bad, self.steps = comm.rank == comm.size - 1, 0

    def backward(self, grad, after_layer):
        self.steps += 1
        if self.bad and self.steps == 3:
            grad[0, 0, 0] = np.inf
        super().backward(grad, after_layer)


def overflow(comm, kind=LossScaled):
    net = precision.rounded(Overflowing(comm, TEXT.classes, 5, 8, 1, 2), "mixed-float16")
    return trained(comm, net, optimizer=lambda parameters, lr: kind(AdamW(parameters, lr), scale=1024.0))


def test_an_overflow_on_one_rank_skips_the_step_on_all(comm):
    _, optimizer, records = overflow(comm)
    assert [r["skipped_steps"] for r in records] == [0, 0, 1, 1, 1]
    assert [r["loss_scale"] for r in records] == [1024.0, 1024.0, 512.0, 512.0, 512.0]
    assert optimizer.optimizer.steps == 4
    assert not np.isfinite(records[2]["gradient_norm"])
    assert all(np.isfinite(r["loss"]) for r in records)


def test_the_comparison_finds_a_rank_that_skips_alone(comm):
    class Planted(LossScaled):
        def step(self):
            if comm.rank == 0 and not np.isfinite(self.parameters[0].grad).all():
                self.zero_grad()
            super().step()

    with pytest.raises(AssertionError):
        overflow(comm, Planted)


SMALL = ["--context", "6", "--width", "8", "--heads", "2", "--layers", "1", "--steps", "4", "--global-batch", "50"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--precision", "mixed"], "parameters of bfloat16, their masters of float32"),
        (["--precision", "mixed-float16", "--wire-dtype", "float16"], "parameters of float16"),
        (["--micro-batch", "9", "--find-unused-parameters", "--layer-drop", "0.5"], ", at most 9 at a time"),
        (["--sync", "parameter-server", "--dedicated-server"], "batch  50 samples = "),
    ],
)
def test_the_command_trains_so(comm, tmp_path, capsys, arguments, says):
    metrics = tmp_path / "metrics.jsonl"
    assert train.main([*SMALL, *arguments, "--metrics", str(metrics)]) == 0
    if comm.rank:
        return
    out = capsys.readouterr().out
    assert says in out
    assert "exactly the formula" in out
    assert f"{comm.size}, bit-identical" in out
    workers = comm.size - ("--dedicated-server" in arguments)
    each = {1: "1 rank x 50", 2: "2 ranks x 25", 3: "3 ranks x 16 or 17", 4: "4 ranks x 12 or 13"}[workers]
    assert f"batch  50 samples = {each}" in out
    *steps, summary = [json.loads(line) for line in metrics.read_text().splitlines()]
    assert summary["precision"] == (arguments[1] if arguments[0] == "--precision" else "float32")
    assert summary["skipped_steps"] == 0
    assert all(("loss_scale" in step) == ("mixed-float16" in arguments) for step in steps)


def test_a_batch_smaller_than_the_ranks_is_an_error(comm, capsys):
    assert train.main([*SMALL, "--global-batch", "1"]) == (0 if comm.rank else 2)
    err = capsys.readouterr().err
    assert (f"global batch of 1 is smaller than the {comm.size} ranks" in err) == (comm.rank == 0)


def test_the_metrics_are_json_also_when_the_loss_is_not_finite(comm, tmp_path):
    def refuse(word):
        raise AssertionError(f"{word} is no JSON")

    metrics = tmp_path / "metrics.jsonl"
    with contextlib.redirect_stdout(None):
        arguments = ["--optimizer", "sgd", "--lr", "1e38", "--clip", "0", "--metrics", str(metrics)]
        assert train.main([*SMALL, *arguments]) == (comm.rank == 0)
    if comm.rank == 0:
        records = [json.loads(line, parse_constant=refuse) for line in metrics.read_text().splitlines()]
        assert records[-1]["loss"] is None
