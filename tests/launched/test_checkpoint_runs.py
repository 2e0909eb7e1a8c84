"""Runs that end before their time, and go on."""

import pytest

from mpicoll.training import checkpoint

TRAIN = ("-m", "mpicoll.train")
SMALL = ("--context", "6", "--width", "16", "--heads", "2", "--layers", "1", "--global-batch", "24")


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("the quick brown fox jumps over the lazy dog\n" * 60)
    return path


def test_a_run_goes_on_at_another_number_of_ranks_and_writes_text(mpirun, tmp_path, text):
    words = (*TRAIN, *SMALL, "--data", str(text), "--reproducible", "--steps", "60")
    parts, whole = tmp_path / "parts", tmp_path / "whole"
    stopped = mpirun(2, *words, "--checkpoint", str(parts), "--stop-at", "25")
    assert stopped.returncode == 0, stopped.stderr
    assert stopped.stdout.endswith(f"ended by --stop-at after step 25 of 60; to go on: --resume {parts}\n")
    on = mpirun(1, *TRAIN, "--resume", str(parts), "--reproducible")
    assert on.returncode == 0, on.stderr
    assert "60/60" in on.stderr
    assert mpirun(1, *words, "--checkpoint", str(whole)).returncode == 0
    assert checkpoint.find(parts).read_bytes() == checkpoint.find(whole).read_bytes()
    wrote = mpirun(2, *TRAIN, "sample", "--checkpoint", str(parts), "--prompt", "the ", "--length", "40")
    assert wrote.returncode == 0, wrote.stderr
    assert wrote.stdout.startswith("the ")
    assert len(wrote.stdout) == 4 + 40 + 1


def test_text_is_written_from_weights_of_16_bits(mpirun, tmp_path, text):
    words = "--precision", "mixed", "--data", str(text), "--steps", "2", "--checkpoint", str(tmp_path / "run")
    done = mpirun(1, *TRAIN, *SMALL, *words)
    assert done.returncode == 0, done.stderr
    wrote = mpirun(1, *TRAIN, "sample", "--checkpoint", str(tmp_path / "run"), "--length", "10")
    assert (wrote.returncode, len(wrote.stdout)) == (0, 11), wrote.stderr


def test_a_kill_while_a_checkpoint_is_written_leaves_the_one_before(mpirun, tmp_path, text):
    """Rank 0 kills itself in the middle of the second one."""
    folder = tmp_path / "run"
    program = f"""
import os, signal, sys
from mpicoll import train
from mpicoll.training import checkpoint

right, number = checkpoint.save_file, []
def killed(arrays, path, metadata):
    right(arrays, path, metadata)
    number.append(os.truncate(path, 100) if number else None)
    if len(number) == 2:
        os.kill(os.getpid(), signal.SIGKILL)
checkpoint.save_file = killed
sys.exit(train.main({[*SMALL, "--data", str(text), "--steps", "30"]} + sys.argv[1:]))
"""
    first = "--checkpoint", str(folder), "--checkpoint-every", "10"
    done = mpirun(2, "-c", program, *first)
    assert done.returncode != 0
    assert {x.name for x in folder.iterdir()} == {"step-00000010.safetensors", checkpoint.UNFINISHED}
    on = mpirun(2, *TRAIN, "--resume", str(folder), "--checkpoint-every", "10")
    assert on.returncode == 0, on.stderr
    assert [x.name for x in sorted(folder.iterdir())] == ["step-00000020.safetensors", "step-00000030.safetensors"]
