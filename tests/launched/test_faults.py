"""A rank that fails in training ends the job in time, and what it said names rank and cause.

The faults are those of scripts/faults.py; how programs end that do not train is tested in test_endings and test_hangs,
checkpoints in test_checkpoint_runs and test_checkpoint, the doctor in test_doctor_runs.
"""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "scripts"))
import faults

HERE = [
    "raise in forward",
    "raise between launch and finish",
    "SIGKILL in backward",
    "one rank skips a step",
    "one rank skips a step, MPICOLL_DEBUG",
    "different order",
    "different dtypes of as many bytes, MPICOLL_DEBUG",
    "disk full while saving",
]


@pytest.fixture(scope="module")
def vendor():
    return faults.mpi()


@pytest.mark.parametrize("name", HERE)
def test_a_fault_ends_the_job_and_is_told(vendor, name):
    outcome = faults.attempt(faults.FAULTS[name], vendor)
    assert not outcome.wrong, outcome.output


HONEST = faults.Fault("note()", "replicas +2, bit-identical", [*faults.SMALL, "--steps", "2"], status=lambda s: s == 0)


@pytest.mark.parametrize(
    ("changed", "wrong"),
    [
        ({}, ""),
        ({"told": "never said"}, "nothing says 'never said'"),
        ({"status": bool}, "the exit status is 0"),
        ({"bound": 0.0}, "later than 0"),
        ({"check": faults.saved(10)}, "there is no such file"),
    ],
    ids=["nothing", "told", "status", "bound", "check"],
)
def test_the_checker_says_what_is_not_as_promised(tmp_path, changed, wrong):
    (tmp_path / "fault").write_text("0")
    found = faults.verdict(HONEST._replace(**changed), tmp_path, True, 1.0, "replicas   2, bit-identical", 0)
    assert wrong in found
    assert bool(wrong) == bool(found)


def test_a_hang_is_told(tmp_path):
    assert faults.verdict(HONEST, tmp_path, False, 60.0, "", -9) == "it hung"
