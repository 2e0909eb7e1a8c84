"""The commands as users type them."""

import json

import pytest

TRAIN = ("-m", "mpicoll.train")
SMALL = ("--model", "mlp", "--steps", "4", "--hidden", "16", "--layers", "1", "--global-batch", "24")


def test_train_prints_what_it_did_and_writes_metrics(mpirun, tmp_path):
    metrics = tmp_path / "metrics.jsonl"
    done = mpirun(3, *TRAIN, *SMALL, "--metrics", str(metrics))
    assert done.returncode == 0, done.stderr
    for words in ("nats/character", "exposed communication", "exactly the formula", "3, bit-identical"):
        assert done.stdout.count(words) == 1, done.stdout
    assert "4/4" in done.stderr  # the progress bar
    *steps, summary = map(json.loads, metrics.read_text().splitlines())
    assert [step["step"] for step in steps] == [1, 2, 3, 4]
    assert summary["event"] == "summary"
    assert summary["world_size"] == 3
    assert summary["replicas_identical"] is True
    assert summary["bytes_sent_per_rank"] > 0


def test_train_runs_without_a_launcher(mpirun):
    done = mpirun(1, *TRAIN, *SMALL)
    assert done.returncode == 0, done.stderr
    assert "1, bit-identical" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--steps", "0"), "argument --steps: 0 is not a number from 1 up"),
        (("--steps", "many"), "argument --steps: invalid int value: 'many'"),
        (("--data", "nowhere.txt"), "data file nowhere.txt: No such file or directory"),
        (("--data", "empty.txt"), "data file empty.txt is empty"),
        (("--data", "small.txt"), "the global batch is 1680, the data has 168 training samples"),
        (("--data", "binary.txt"), "data file binary.txt is not UTF-8: byte 0xff at offset 0"),
        (("--global-batch", "2"), "the global batch of 2 is smaller than the 3 ranks that share it"),
        (("--algorithm", "rign"), "algorithm is 'rign'; there are 'recursive_doubling', 'tree', 'ring'"),
        (("--width", "64"), "--model mlp has no --width; it has --context, --layers, --embedding, --hidden"),
        (("--preset", "tiny"), "--preset tiny is a GPT's; --model is mlp"),
        (("--model", "gpt", "--data", "digits"), "--data digits are images, and --model gpt reads text"),
        (("--model", "gpt", "--heads", "5"), "5 heads do not divide a width of 96; 95 would do"),
        (("--epochs", "2", "--steps", "3"), "not allowed with argument --epochs"),
        (("--warmup", "2"), "2 is not a number from 0 to 1"),
        (("--metrics", "nowhere/m.jsonl"), "metrics file nowhere/m.jsonl: No such file or directory"),
    ],
)
def test_train_says_once_and_in_one_line_what_is_wrong(mpirun, arguments, told):
    mpirun.folder.joinpath("empty.txt").write_text("")
    mpirun.folder.joinpath("small.txt").write_text("as small as this " * 12)
    mpirun.folder.joinpath("binary.txt").write_bytes(b"\xff\xfe")
    done = mpirun(3, *TRAIN, "--model", "mlp", *arguments)
    assert done.returncode != 0
    assert done.stderr.count("mpicoll.train: error: ") == 1, done.stderr
    assert told in done.stderr
    assert "Traceback" not in done.stderr


def test_a_wrong_environment_is_told_once_and_in_one_line(mpirun):
    done = mpirun(2, *TRAIN, *SMALL, MPICOLL_ALGORITHM="nonsense")
    assert done.returncode != 0
    assert done.stderr.count("mpicoll.train: error: MPICOLL_ALGORITHM: 'nonsense' in 'nonsense' is no algorithm") == 1
    assert "Traceback" not in done.stderr


def test_help_is_printed_once(mpirun):
    done = mpirun(3, *TRAIN, "--help")
    assert done.returncode == 0
    assert done.stdout.count("usage: mpicoll.train") == 1
    assert "800 (mlp)" in done.stdout


LATE = """
import sys, time
from mpicoll import runtime, train

class Late:  # rank 0 takes its time to say something
    def write(self, text):
        time.sleep(0.5)
        sys.__stderr__.write(text)

    def flush(self):
        sys.__stderr__.flush()

if not runtime.launched_rank():
    sys.stderr = Late()
raise SystemExit(train.main({arguments}))
"""


@pytest.mark.parametrize("arguments", [["--steps", "0"], ["--data", "nowhere.txt"]])
def test_what_rank_0_says_is_not_cut_off_by_the_others_ends(mpirun, arguments):
    done = mpirun(3, LATE.format(arguments=arguments))
    assert done.returncode != 0
    assert done.stderr.count("mpicoll.train: error: ") == 1, done.stderr
