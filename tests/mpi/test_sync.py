"""All ways to synchronise train what one process trains."""

import contextlib
import json
from types import SimpleNamespace

import numpy as np
import pytest

from mpicoll import train
from mpicoll.training import sync
from mpicoll.training.buckets import MIB
from mpicoll.training.ddp import DistributedDataParallel
from mpicoll.training.losses import cross_entropy
from mpicoll.training.models import CharMLP
from mpicoll.training.optimizers import AdamW
from mpicoll.training.parameter_server import ParameterServer
from mpicoll.training.replicas import first_difference

pytestmark = [pytest.mark.mpi(min_size=2), pytest.mark.ranks(range(4))]


STEPS, SHARE, CONTEXT, VOCABULARY = 6, 5, 3, 9


def net(seed=1):
    return CharMLP(VOCABULARY, CONTEXT, 4, 8, 2, seed=seed, dtype=np.float64)


def step(model, optimizer, tokens, divisor):
    optimizer.zero_grad()
    _, grad = cross_entropy(model.forward(tokens[:, :-1]), tokens[:, -1], divisor)
    model.backward(grad)
    optimizer.step()


def batches(size):
    rng = np.random.default_rng(5)
    return [rng.integers(VOCABULARY, size=(size, SHARE, CONTEXT + 1)) for _ in range(STEPS)]


def check(comm, options):
    alone = net()
    optimizer = AdamW(alone.parameters, 0.01)
    for batch in batches(comm.size):
        step(alone, optimizer, batch.reshape(-1, CONTEXT + 1), SHARE * comm.size)
    model = DistributedDataParallel(net(seed=1 + comm.rank), comm, **options)
    make, exchange = (lambda parameters: AdamW(parameters, 0.01)), options.get("exchange")
    optimizer = exchange.optimizer(model, make) if isinstance(exchange, ParameterServer) else make(model.parameters)
    for batch in batches(comm.size):
        step(model, optimizer, batch[comm.rank], SHARE)
        assert model.bytes_sent == model.formula_bytes()
    for p, q in zip(model.parameters, alone.parameters, strict=True):
        np.testing.assert_allclose(p.data, q.data, rtol=1e-9, atol=1e-12, err_msg=p.name)
    assert first_difference(comm, model.parameters) is None
    return model


@pytest.mark.parametrize("mode", sync.MODES)
def test_every_mode_trains_what_one_process_trains(comm, mode):
    args = SimpleNamespace(sync=mode, wire_dtype=None, bucket_cap_mb=300 / MIB, no_overlap=False, rebuild_buckets=False)
    model = check(comm, sync.options(args))
    if mode == "per-parameter":
        assert len(model.buckets) == len(model.parameters)


def test_the_server_may_be_any_rank(comm):
    check(comm, {"exchange": ParameterServer(comm.size - 1)})


def test_rebuilt_buckets_train_the_same(comm):
    model = check(comm, {"bucket_cap_mb": 300 / MIB, "first_bucket_mb": 100 / MIB, "rebuild_buckets": True})
    assert len(model.buckets) > 2


def test_the_check_finds_a_server_whose_parameters_are_not_fetched(comm, monkeypatch):
    right = type(comm).ibroadcast

    def planted(self, buf, root=0):
        return right(self, buf.copy(), root)

    exchange = ParameterServer()
    make = exchange.optimizer

    def after_construction(*arguments):
        monkeypatch.setattr(type(comm), "ibroadcast", planted)
        return make(*arguments)

    monkeypatch.setattr(exchange, "optimizer", after_construction)
    with pytest.raises(AssertionError):
        check(comm, {"exchange": exchange})


GPT = ["--steps", "4", "--global-batch", "840", "--context", "6", "--width", "8", "--heads", "2", "--layers", "2"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--sync", "per-parameter"], "28 gradient buckets of 0.00 to 0.00 MiB"),
        (["--sync", "after-backward"], "the same when backward has ended"),
        (["--sync", "parameter-server"], "    push "),
        (["--sync", "parameter-server", "--dedicated-server", "--micro-batch", "20"], "    pull "),
        (["--wire-dtype", "float16"], "gradients travel as float16"),
        (["--layer-drop", "0.5", "--find-unused-parameters", "--check-finite"], "leaves out half a block in 50%"),
    ],
)
def test_the_command_offers_all_of_it(comm, capsys, arguments, says):
    assert train.main([*GPT, *arguments]) == 0
    out = capsys.readouterr().out
    if comm.rank == 0:
        assert says in out
        assert "exactly the formula" in out
        assert f"{comm.size}, bit-identical" in out


def test_a_dedicated_server_trains_what_the_others_would_alone(comm, tmp_path):
    found = []
    for arguments in ([], ["--sync", "parameter-server", "--dedicated-server"]):
        metrics = tmp_path / "metrics.jsonl"
        batch = str(20 * comm.size * (comm.size - 1))
        with contextlib.redirect_stdout(None):
            assert train.main([*GPT, *arguments, "--global-batch", batch, "--metrics", str(metrics)]) == 0
        if comm.rank == 0:
            found.append(json.loads(metrics.read_text().splitlines()[-1]))
    if comm.rank == 0:
        everyone, served = found
        assert everyone["waits_ms"].keys() == {"all-reduce"}
        assert served["waits_ms"].keys() == {"push", "pull"}
        for name in ("first_loss", "final_loss", "eval_loss"):
            assert served[name] == pytest.approx(everyone[name], rel=1e-4)


def test_the_parameters_that_no_rank_used_are_in_the_metrics(comm, tmp_path):
    metrics = tmp_path / "metrics.jsonl"
    with contextlib.redirect_stdout(None):
        arguments = ["--layer-drop", "1", "--find-unused-parameters", "--metrics", str(metrics)]
        assert train.main([*GPT, *arguments]) == 0
    if comm.rank == 0:
        for line in metrics.read_text().splitlines()[:-1]:
            assert all(name.startswith("block") for name in json.loads(line)["unused"])


def test_gradients_that_are_not_finite_end_the_run(comm, capsys):
    arguments = ["--check-finite", "--optimizer", "sgd", "--lr", "1e38", "--clip", "0"]
    with contextlib.redirect_stdout(None):
        assert train.main([*GPT, *arguments]) == (comm.rank == 0)
    if comm.rank == 0:
        assert "mpicoll.train: error: finish: gradients are not finite: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--sync", "parameter-server", "--wire-dtype", "float16"], "is for all-reduces"),
        (["--sync", "parameter-server", "--algorithm", "ring"], "--algorithm ring is of the all-reduce"),
        (["--dedicated-server"], "is for --sync parameter-server, not allreduce"),
        (["--layer-drop", "0.5"], "add --find-unused-parameters"),
    ],
)
def test_options_that_exclude_each_other_are_named(comm, capsys, arguments, message):
    with pytest.raises(SystemExit):
        train.main([*GPT, *arguments])
    err = capsys.readouterr().err
    assert (message in err) == (comm.rank == 0)
