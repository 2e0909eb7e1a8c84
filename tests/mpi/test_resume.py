"""A run that was stopped and goes on is the run that was not stopped."""

import json
import os
import signal

import pytest

from mpicoll import train
from mpicoll.training import checkpoint, optimizers, resume, sampler, saving

pytestmark = [pytest.mark.mpi(min_size=1), pytest.mark.ranks(range(4))]

TEXT = b"the quick brown fox jumps over the lazy dog\n" * 40
GPT = ["--context", "6", "--width", "8", "--heads", "2", "--layers", "1", "--global-batch", "12", "--steps", "12"]
MLP = ["--model", "mlp", "--hidden", "8", "--layers", "1", "--global-batch", "12", "--steps", "12"]


@pytest.fixture
def folder(comm, tmp_path):
    """A folder that all ranks share."""
    content = str(tmp_path).encode() if comm.rank == 0 else b""
    return resume.Path(resume.from_rank_0(comm, lambda: content).decode())


@pytest.fixture(autouse=True)
def text(monkeypatch):
    """A small one is the default: evaluated at once."""
    monkeypatch.setattr("mpicoll.training.setup.read", lambda path: resume.Path(path).read_bytes() if path else TEXT)


def run(*arguments):
    return train.main([*map(str, arguments)])


def files(comm, folder):
    """The last checkpoint's content, on every rank."""
    return resume.from_rank_0(comm, lambda: checkpoint.find(folder).read_bytes())


@pytest.mark.parametrize(
    "arguments",
    [
        [*GPT, "--clip", "0.5"],
        [*MLP, "--optimizer", "sgd", "--precision", "mixed-float16"],
        [*GPT, "--sync", "parameter-server", "--precision", "mixed"],
        [*GPT, "--layer-drop", "0.5", "--find-unused-parameters", "--micro-batch", "1"],
    ],
    ids=["adamw", "sgd", "server", "layer drop"],
)
def test_k_steps_and_k_more_are_2k_steps_byte_for_byte(comm, folder, arguments):
    assert run(*arguments, "--checkpoint", folder / "whole") == 0
    assert run(*arguments, "--checkpoint", folder / "parts", "--stop-at", 5) == 0
    stopped = files(comm, folder / "parts")
    assert run("--resume", folder / "parts") == 0
    assert files(comm, folder / "parts") == files(comm, folder / "whole") != stopped


def test_the_comparison_finds_an_optimizer_that_starts_anew(comm, folder, monkeypatch):
    monkeypatch.setattr("mpicoll.training.optimizers.Optimizer.restore", lambda self, state: None)
    with pytest.raises(AssertionError):
        test_k_steps_and_k_more_are_2k_steps_byte_for_byte(comm, folder, GPT)


def test_a_checkpoint_that_cannot_be_written_ends_every_rank_and_the_one_before_stays(
    comm, folder, monkeypatch, capsys
):
    replace, renames = os.replace, []

    def full(old, new):
        renames.append(new)
        if len(renames) == 2:
            raise OSError(28, "No space left on device")
        replace(old, new)

    monkeypatch.setattr(os, "replace", full)
    assert run(*MLP, "--checkpoint", folder, "--checkpoint-every", 4) == (comm.rank == 0)
    if comm.rank == 0:
        err = capsys.readouterr().err
        path = folder / "step-00000008.safetensors"
        assert err.count("mpicoll.train: error: ") == 1
        assert f"checkpoint {path} cannot be written: No space left on device" in err
        assert [path.name for path in folder.iterdir()] == ["step-00000004.safetensors"]
        assert checkpoint.load(checkpoint.find(folder))[1]["step"] == 4


def test_a_model_that_is_lost_replaces_no_checkpoint(comm, folder, monkeypatch, capsys):
    """The fourth step spoils it; losses are looked at after the tenth only."""
    spoilt = []

    class Spoilt(optimizers.SGD):
        def step(self):
            super().step()
            spoilt.append(self)
            if len(spoilt) == 4:
                self.parameters[-1].data.fill(float("nan"))

    monkeypatch.setattr(optimizers, "SGD", Spoilt)
    words = *MLP, "--optimizer", "sgd", "--checkpoint", folder, "--checkpoint-every", 2
    assert run(*words) == (comm.rank == 0)
    if comm.rank == 0:
        path = folder / "step-00000004.safetensors"
        told = f"checkpoint {path} is not written: {resume.PARAMETERS}output.bias is not finite"
        assert told in capsys.readouterr().err
        assert [path.name for path in folder.iterdir()] == ["step-00000002.safetensors"]


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGTERM])
def test_a_signal_to_any_rank_saves_the_run_at_one_step_and_ends_it(comm, folder, monkeypatch, capsys, number):
    before, batch = signal.SIG_DFL, sampler.Sampler.batch
    assert signal.getsignal(number) == before

    def signalled(self, step):
        if step == 3 and comm.rank == comm.size - 1:
            os.kill(os.getpid(), number)
        return batch(self, step)

    monkeypatch.setattr(sampler.Sampler, "batch", signalled)
    assert run(*MLP, "--checkpoint", folder / "parts") == 0
    os.kill(os.getpid(), number)  # a second one, passed on by somebody else, kills nobody
    for changed in saving.SIGNALS:
        signal.signal(changed, before)
    step = 5  # of the fourth step, whose number was under way already, all learn after the fifth
    if comm.rank == 0:
        last = capsys.readouterr().out.splitlines()[-1]
        told = f"ended by {number.name} to rank {comm.size - 1} after step {step} of 12; to go on: --resume "
        assert last == f"{told}{folder / 'parts'}"
        assert list(checkpoint.found(folder / "parts")) == [step]
    monkeypatch.setattr(sampler.Sampler, "batch", batch)
    assert run("--resume", folder / "parts") == 0
    assert run(*MLP, "--checkpoint", folder / "whole") == 0
    assert files(comm, folder / "parts") == files(comm, folder / "whole")


def test_metrics_go_on_and_a_finished_run_has_nothing_left_to_do(comm, folder, capsys):
    metrics, run_folder = folder / "metrics.jsonl", folder / "run"
    assert run(*MLP, "--checkpoint", run_folder, "--checkpoint-every", 4, "--metrics", metrics) == 0
    expected = [json.loads(line)["loss"] for line in metrics.read_text().splitlines()[:-1]] if comm.rank == 0 else []
    one_before = run_folder / "step-00000008.safetensors"
    assert run("--resume", one_before, "--metrics", metrics) == 0
    assert capsys.readouterr().out.count(f"resume {one_before}: step 8 of 12 is made\n") == (comm.rank == 0)
    for _ in range(2):
        if comm.rank == 0:
            *steps, summary = map(json.loads, metrics.read_text().splitlines())
            assert [step["step"] for step in steps] == list(range(1, 13))
            assert [step["loss"] for step in steps] == expected
            assert (summary["event"], summary["steps"], summary["resumed_at"]) == ("summary", 4, 8)
        assert run("--resume", run_folder, "--metrics", metrics) == 0  # changes nothing
    out = capsys.readouterr().out
    assert out.count("nothing is left to do: ") == 2 * (comm.rank == 0)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--resume", "nowhere"], "checkpoint nowhere: there is no such file or folder"),
        (["--resume", "{run}", "--lr", "7"], "--lr is 7.0, in checkpoint {run}/step-00000001.safetensors it is 0.002"),
        (["--resume", "{run}", "--data", "other.txt"], "the data have another vocabulary than checkpoint {run}/step-"),
        (["--resume", "{damaged}"], "checkpoint {damaged}/step-00000001.safetensors is truncated, damaged or no"),
        ([*MLP, "--checkpoint", "{run}"], "checkpoint folder {run} has a run's checkpoint of step 1: --resume {run}"),
        ([*MLP, "--checkpoint", "file"], "checkpoint folder file: Not a directory"),
    ],
)
def test_what_cannot_be_gone_on_with_is_one_line_on_rank_0_and_status_2(comm, folder, monkeypatch, capsys, words, told):
    places = {"run": folder / "run", "damaged": folder / "damaged"}
    assert run(*MLP, "--stop-at", 1, "--checkpoint", places["run"]) == 0
    monkeypatch.chdir(folder)
    if comm.rank == 0:
        path = checkpoint.find(places["run"])
        places["damaged"].mkdir()
        (places["damaged"] / path.name).write_bytes(path.read_bytes()[:-1])
        (folder / "other.txt").write_text("the quick brown fox " * 100)
        (folder / "file").write_text("")
    comm.barrier()
    capsys.readouterr()
    assert run(*(word.format(**places) for word in words)) == (0 if comm.rank else 2)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("mpicoll.train: error: ") == (comm.rank == 0)
    assert told.format(**places) in err or comm.rank
