"""The experiments as users start them; the figures of --quick mean nothing, but all of them are there."""

import json

COMMAND = ("-m", "mpicoll.experiments")


def test_all_experiments_run_and_write_their_rows(mpirun, tmp_path):
    path = tmp_path / "rows.jsonl"
    done = mpirun(2, *COMMAND, "all", "--quick", "--device", "cpu", "--json", str(path))
    assert done.returncode == 0, done.stderr
    rows = {}
    for record in map(json.loads, path.read_text().splitlines()):
        assert record.pop("event") == "row" or record["ranks"].startswith("2 ranks on ")
        rows.setdefault(record.pop("experiment"), []).append(record)
    assert {name: len(those) - 1 for name, those in rows.items()} == {
        "overlap": 3,
        "bucket-sweep": 6,
        "skip-sync": 4,
        "scaling": 2,
        "sync-modes": 4,
        "batch-sweep": 6,
        "batch-size": 4,
    }
    one, two = rows["batch-size"][1:3]  # the same global batch on one rank and on two
    assert abs(one["eval_loss"]["median"] - two["eval_loss"]["median"]) < 1e-3
    for words in ("38.0 %", "10 to 25 MB", "Slide 46: the redundant local update takes", "efficiency", "noise scale"):
        assert words in done.stdout
    assert done.stdout.count("mpi      ") == 1


def test_a_wrong_name_is_told_once(mpirun):
    done = mpirun(2, *COMMAND, "overlpa")
    assert done.returncode == 2
    assert done.stderr.count("mpicoll.experiments: error: argument NAME: invalid choice: 'overlpa'") == 1
    assert "Traceback" not in done.stderr
