"""Training on N ranks is training on one, and the command says so when it is not."""

import contextlib
import json

import numpy as np
import pytest

from mpicoll import progress, train
from mpicoll.training import loop, optimizers, recipes, reducer
from mpicoll.training.data import Text
from mpicoll.training.ddp import DistributedDataParallel
from mpicoll.training.gpt import GPT
from mpicoll.training.losses import cross_entropy
from mpicoll.training.models import CharMLP
from mpicoll.training.reducer import Reducer
from mpicoll.training.replicas import first_difference
from mpicoll.training.sampler import Sampler

pytestmark = pytest.mark.mpi(min_size=2)


@pytest.fixture(autouse=True)
def few_ranks(comm, request):
    if comm.size > 4 and "capsys" in request.fixturenames:
        pytest.skip("whole runs up to four ranks, since time is short")


TEXT = Text(b"the quick brown fox jumps over the lazy dog; " * 40, context=5)
BATCH = 840  # divides by 1 to 8
STEPS = 8


def model(seed=1, of=CharMLP):
    if of is GPT:
        return GPT(TEXT.classes, 5, 8, 2, 2, seed=seed, dtype=np.float64)
    return CharMLP(len(TEXT.vocabulary), 5, 4, 16, 2, seed=seed, dtype=np.float64)


def schedule(step):
    return 0.01 * (step + 1)


def alone(kind, of=CharMLP, limit=None):
    """The model and the losses after training in one process on whole batches: no reducer, no ranks."""
    net, sampler, losses = model(of=of), Sampler(len(TEXT.train), BATCH, seed=3), []
    optimizer = kind(net.parameters, lr=1.0)
    for step in range(STEPS):
        batch = TEXT.train[sampler.batch(step)]
        optimizer.zero_grad()
        targets = batch[:, 1:] if of is GPT else batch[:, -1]
        loss, grad = cross_entropy(net.forward(batch[:, :-1]), targets, divisor=targets.size)
        net.backward(grad)
        if limit:
            optimizers.clip(net.parameters, limit)
        optimizer.lr = schedule(step)
        optimizer.step()
        losses.append(loss.mean())
    return net, losses


def together(comm, kind, accumulate=False, wrapper=DistributedDataParallel, of=CharMLP, limit=None, **options):
    """The same over the ranks of comm; ranks other than 0 start from other weights, which must not matter."""
    net = wrapper(model(1 + comm.rank, of), comm, **options)
    share = BATCH // comm.size
    micro = share // next(d for d in range(2, share + 1) if share % d == 0) if accumulate else None
    sampler = Sampler(len(TEXT.train), BATCH, comm.rank, comm.size, seed=3, micro_batch=micro)
    optimizer = kind(net.parameters, lr=1.0)
    records = list(loop.train(comm, net, optimizer, TEXT.train, sampler, STEPS, schedule, limit))
    assert all(("gradient_norm" in record) == (limit is not None) for record in records)
    return net, [record["loss"] for record in records]


def check_equal(comm, kind, of=CharMLP, limit=None, **options):
    expected, expected_losses = alone(kind, of, limit)
    got, losses = together(comm, kind, of=of, limit=limit, **options)
    np.testing.assert_allclose(losses, expected_losses, rtol=1e-11)
    for p, q in zip(got.parameters, expected.parameters, strict=True):
        np.testing.assert_allclose(p.data, q.data, rtol=1e-9, atol=1e-12, err_msg=p.name)
    assert first_difference(comm, got.parameters) is None


@pytest.mark.parametrize("kind", [optimizers.SGD, optimizers.AdamW])
@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("overlap", [False, True])
def test_n_ranks_train_what_one_process_trains(comm, kind, accumulate, overlap):
    check_equal(comm, kind, accumulate=accumulate, overlap=overlap, bucket_cap_mb=1e-3)


@pytest.mark.parametrize("accumulate", [False, True])
def test_a_gpt_and_clipped_gradients_too(comm, accumulate):
    check_equal(comm, optimizers.SGD, of=GPT, limit=0.3, accumulate=accumulate, bucket_cap_mb=1e-3)


def test_the_comparison_finds_a_norm_of_a_rank_alone(comm, monkeypatch):
    class Local(DistributedDataParallel):
        """Clips before the average."""

        def finish(self):
            optimizers.clip(self.parameters, 0.3)
            super().finish()

    monkeypatch.setattr(loop, "clip", lambda parameters, limit, scale: np.zeros(()))
    with pytest.raises(AssertionError):
        check_equal(comm, optimizers.SGD, of=GPT, limit=0.3, wrapper=Local, overlap=False)


@pytest.mark.parametrize("algorithm", ["ring", "tree", "recursive_doubling"])
def test_the_algorithm_does_not_matter(comm, algorithm):
    check_equal(comm, optimizers.AdamW, algorithm=algorithm)


def test_a_progress_thread_does_not_matter(comm):
    with progress.thread():
        check_equal(comm, optimizers.AdamW, bucket_cap_mb=1e-3)


def test_the_comparison_finds_a_sum_instead_of_an_average(comm):
    class Summing(DistributedDataParallel):
        def finish(self):
            super().finish()
            for bucket in self.buckets:
                bucket.flat *= self.comm.size

    with pytest.raises(AssertionError):
        check_equal(comm, optimizers.SGD, wrapper=Summing)


def test_gradients_marked_in_different_random_orders_are_averaged(comm):
    parameters, rng = model().parameters, np.random.default_rng(comm.rank)
    averaging = Reducer(comm, parameters, bucket_cap_mb=1e-3, first_bucket_mb=1e-4)
    assert len(averaging.buckets) > 3
    for step in range(10):
        averaging.zero_grad()
        for i in rng.permutation(len(parameters)):
            parameters[i].grad += step + 10 * i + comm.rank
            averaging.mark_ready(parameters[i])
        averaging.finish()
        for i, p in enumerate(parameters):
            np.testing.assert_allclose(p.grad, step + 10 * i + (comm.size - 1) / 2)


def test_nothing_is_sent_inside_no_sync(comm):
    parameters = model().parameters
    averaging = Reducer(comm, parameters)
    before = comm.bytes_sent
    with averaging.no_sync():
        for p in parameters:
            averaging.mark_ready(p)
    assert comm.bytes_sent == before


def test_the_held_out_loss_counts_every_position_once(comm):
    net, windows = model(), TEXT.held_out[:101]
    for part in (windows, windows[:1]):  # of one window, some ranks have nothing to do
        logits = net.forward(part[:, :-1]).copy()
        loss = cross_entropy(logits, part[:, -1])[0].mean()
        accuracy = (logits.argmax(axis=1) == part[:, -1]).mean()
        assert loop.evaluate(comm, net, part, batch=7) == pytest.approx((loss, accuracy), rel=1e-13)


def test_different_models_are_an_error_on_every_rank(comm):
    width = 16 if comm.rank == 0 else 17
    net = CharMLP(len(TEXT.vocabulary), 5, 4, width, 1)
    with pytest.raises(ValueError, match=r"rank\(s\) 1.*parameter 1 is hidden0\.weight float32\[20, 16\] on rank 0"):
        Reducer(comm, net.parameters)


SMALL = ["--model", "mlp", "--steps", "12", "--global-batch", str(BATCH), "--hidden", "16", "--bucket-cap-mb", "0.01"]


def test_the_command_reports_a_right_run(comm, tmp_path, capsys):
    metrics = tmp_path / "metrics.jsonl"
    assert train.main([*SMALL, "--metrics", str(metrics)]) == 0
    if comm.rank:
        assert capsys.readouterr() == ("", "")
        assert not metrics.exists()
        return
    *steps, summary = [json.loads(line) for line in metrics.read_text().splitlines()]
    assert [s["step"] for s in steps] == list(range(1, 13))
    assert {s["event"] for s in steps} == {"step"}
    assert (summary["event"], summary["world_size"], summary["steps"]) == ("summary", comm.size, 12)
    assert summary["first_loss"] == steps[0]["loss"] > summary["final_loss"] == steps[-1]["loss"]
    assert summary["eval_loss"] < summary["first_loss"]
    assert summary["bytes_sent_per_rank"] == summary["formula_bytes_per_rank"] > 0
    assert summary["replicas_identical"]
    out = capsys.readouterr().out
    assert f"{comm.size}, bit-identical" in out
    assert "exactly the formula" in out


def test_the_command_trains_a_gpt(comm, tmp_path, capsys):
    metrics = tmp_path / "metrics.jsonl"
    sizes = ["--context", "8", "--width", "16", "--layers", "1", "--heads", "2"]
    few = ["--steps", "12", "--global-batch", "840", "--lr-rule", "linear", "--lr", "1e-3", "--clip", "0.5"]
    assert train.main([*sizes, *few, "--metrics", str(metrics)]) == 0
    if comm.rank:
        assert capsys.readouterr().out == ""
        return
    *steps, summary = [json.loads(line) for line in metrics.read_text().splitlines()]
    assert summary["eval_loss"] < summary["first_loss"] == pytest.approx(np.log(103), rel=0.05)
    assert 0 < summary["eval_accuracy"] < 1
    assert summary["predictions_per_s"] == pytest.approx(8 * summary["samples_per_s"])
    assert summary["model"] == "tiny: context 8, width 16, heads 2, layers 1"
    assert summary["replicas_identical"]
    assert summary["bytes_as_formula"]
    assert all(step["gradient_norm"] > 0 for step in steps)
    assert max(step["lr"] for step in steps) == pytest.approx(1e-3 * 840 / recipes.RECIPES["tiny"]["global_batch"])
    out = capsys.readouterr().out
    assert f"0.001 x (840 / {recipes.RECIPES['tiny']['global_batch']}) = " in out
    assert "clipped to a norm of 0.5" in out


def test_the_command_trains_on_digits(comm, capsys):
    pytest.importorskip("sklearn")
    assert (
        train.main(["--model", "mlp", "--data", "digits", "--epochs", "4", "--global-batch", str(12 * comm.size)]) == 0
    )
    if comm.rank == 0:
        out = capsys.readouterr().out
        assert "nats/image" in out
        assert float(out.split("accuracy")[1].split("%")[0]) > 80


def test_replicas_that_part_are_named_and_the_status_is_1(comm, monkeypatch, capsys):
    right = optimizers.AdamW.step

    def wrong(self):
        right(self)
        if comm.rank == comm.size - 1:
            self.parameters[3].data.reshape(-1)[0] += 1e-3

    monkeypatch.setattr(optimizers.AdamW, "step", wrong)
    assert train.main(SMALL) == (comm.rank == 0)
    if comm.rank == 0:
        assert f"DIFFERENT: hidden1.weight of rank(s) {comm.size - 1}" in capsys.readouterr().out


def test_replicas_that_part_end_the_run_where_they_are_compared(comm, monkeypatch, capsys):
    right = optimizers.AdamW.step

    def wrong(self):
        right(self)
        if comm.rank == comm.size - 1:
            self.parameters[3].data.reshape(-1)[0] += 1e-3

    assert train.main([*SMALL, "--check-replicas", "1"]) == 0
    monkeypatch.setattr(optimizers.AdamW, "step", wrong)
    assert train.main([*SMALL, "--check-replicas", "2"]) == (comm.rank == 0)
    if comm.rank == 0:
        told = f"replicas differ after step 2: hidden1.weight of rank {comm.size - 1} is not rank 0's"
        assert f"mpicoll.train: error: {told}\n" in capsys.readouterr().err
    monkeypatch.setenv("MPICOLL_DEBUG", "1")
    assert train.main(SMALL) == (comm.rank == 0)
    if comm.rank == 0:
        assert "replicas differ after step 10: " in capsys.readouterr().err


def test_bytes_that_are_not_the_formula_are_told_and_the_status_is_1(comm, monkeypatch, capsys):
    right = reducer.Reducer.finish

    def wrong(self):
        right(self)
        self.bytes_sent += comm.rank  # rank 0's own count is right

    monkeypatch.setattr(reducer.Reducer, "finish", wrong)
    assert train.main(SMALL) == (comm.rank == 0)
    if comm.rank == 0:
        assert "NOT THE FORMULA" in capsys.readouterr().out


def test_a_loss_that_is_not_finite_ends_the_run(comm, capsys):
    with contextlib.redirect_stdout(None):
        assert train.main([*SMALL, "--optimizer", "sgd", "--lr", "1e30"]) == (comm.rank == 0)
    if comm.rank == 0:
        assert "the loss is " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data", "missing.txt"], "data file missing.txt: No such file or directory"),
        (["--data", "empty.txt"], "data file empty.txt is empty"),
        (["--data", "small.txt"], "the global batch is 840, the data has"),
        (["--global-batch", "1"], "is smaller than the"),
        (["--algorithm", "nope"], "algorithm is 'nope'"),
        (["--metrics", "no/where.jsonl"], "metrics file no/where.jsonl: No such file"),
        (["--bucket-cap-mb", "0"], "positive"),
    ],
)
def test_what_cannot_be_done_is_one_line_on_rank_0_and_status_2(
    comm, tmp_path, monkeypatch, capsys, arguments, message
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "small.txt").write_text("a small text, smaller than a batch " * 5)
    assert train.main([*SMALL, *arguments]) == (0 if comm.rank else 2)
    out, err = capsys.readouterr()
    assert out == ""
    lines = [line for line in err.splitlines() if ": note: " not in line]  # there may be more ranks than cores
    if comm.rank:
        assert err == ""
    else:
        (line,) = lines
        assert line.startswith("mpicoll.train: error: ")
        assert message in line


@pytest.mark.parametrize(
    "arguments", [["--steps", "0"], ["--steps", "many"], ["--lr", "nan"], ["--nonsense"], ["--hidden", "8"]]
)
def test_arguments_that_make_no_sense_end_the_program_with_status_2(comm, capsys, arguments):
    with pytest.raises(SystemExit) as ending:
        train.main(arguments)
    assert ending.value.code == (0 if comm.rank else 2)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == (comm.rank == 0)
