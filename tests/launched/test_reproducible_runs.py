"""--reproducible as users type it."""

import json

import pytest

SIZES = ("--context", "16", "--width", "24", "--heads", "2", "--layers", "1", "--global-batch", "24", "--steps", "6")
TRAIN = ("-m", "mpicoll.train", *SIZES, "--bucket-cap-mb", "0.02", "--reproducible", "--virtual-ranks", "4")
ONE = {"OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


def test_parameters_and_losses_have_the_same_bits_on_one_two_and_four_ranks(mpirun, tmp_path):
    found = {}
    for size in 1, 2, 4:
        done = mpirun(size, *TRAIN, "--metrics", str(tmp_path / f"{size}.jsonl"), **ONE)
        assert done.returncode == 0, done.stderr
        assert "4 shards are added in one order, with the same bits on 1, 2 or 4 ranks" in done.stdout
        assert "exactly the formula" in done.stdout
        *steps, summary = map(json.loads, (tmp_path / f"{size}.jsonl").read_text().splitlines())
        names = "parameters_sha256", "eval_loss", "eval_accuracy"
        found[size] = [(step["loss"], step["gradient_norm"]) for step in steps], [summary[name] for name in names]
    assert found[1] == found[2] == found[4]


def test_threads_on_one_rank_alone_are_told_by_all(mpirun):
    """Only rank 1 may not begin: the others do not wait for it."""
    program = f"""
import os, sys
from mpicoll import command, train
os.environ["OMP_NUM_THREADS"] = "1" if command.rank() != 1 else "3"
sys.exit(train.main({[*TRAIN[2:]]}))
"""
    done = mpirun(2, program, OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")
    assert done.returncode != 0
    assert done.stderr.count("OMP_NUM_THREADS is 3; start with") == done.stderr.count("(on rank 1)") == 1, done.stderr


@pytest.mark.parametrize(
    ("arguments", "environment", "told"),
    [
        ((), ONE, "4 shards do not divide among 3 ranks; 1, 2 or 4 ranks would do"),
        (
            (),
            {**ONE, "OMP_NUM_THREADS": "2"},
            "needs one thread per rank, and OMP_NUM_THREADS is 2; start with OPENBLAS",
        ),
        (("--algorithm", "ring"), ONE, "--reproducible excludes --algorithm"),
    ],
)
def test_what_would_change_the_bits_is_told_in_one_line(mpirun, arguments, environment, told):
    done = mpirun(3, *TRAIN, *arguments, **environment)
    assert done.returncode != 0
    assert done.stderr.count("mpicoll.train: error: ") == 1, done.stderr
    assert told in done.stderr
    assert "Traceback" not in done.stderr
