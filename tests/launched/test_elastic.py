"""Training goes on without ranks that die, where the MPI lets it; where not, it says so before it begins."""

import json
import re
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "scripts"))
import faults

SMALL = faults.SMALL


@pytest.fixture(scope="module")
def vendor():
    return faults.mpi()


def only_open_mpi(vendor):
    if vendor != "Open MPI":
        pytest.skip("ranks that die end the job, whatever the program does")


def run(program, arguments, vendor, folder, told, status=lambda status: status == 0):
    """The output of a job of three ranks that loses one, and says what is told."""
    words = [*SMALL, "--elastic", *arguments]
    outcome = faults.attempt_in(
        faults.Fault(program, told, words, ranks=3, flags=("--with-ft", "ulfm"), status=status), vendor, folder
    )
    assert not outcome.wrong, outcome.output
    return outcome.output


def test_training_goes_on_with_3_and_then_2_of_4_ranks(vendor, tmp_path):
    only_open_mpi(vendor)
    name = "SIGKILL of two of four, --elastic"
    outcome = faults.attempt_in(faults.FAULTS[name], vendor, tmp_path)
    assert not outcome.wrong, outcome.output


def test_rank_0_may_be_lost_while_it_saves_and_the_file_of_metrics_goes_on(vendor, tmp_path):
    only_open_mpi(vendor)
    arguments = ["--checkpoint", "run", "--checkpoint-every", "10", "--metrics", "metrics"]
    output = run(faults.HALF, arguments, vendor, tmp_path, r"lost rank 0 after step 20: 2 go on after \d.\d\d s\n")
    records = [json.loads(line) for line in (tmp_path / "metrics").read_text().splitlines()]
    assert [record.get("step") for record in records] == [*range(1, 41), None]
    assert records[-1]["event"] == "summary"
    assert records[-1]["lost"] == re.findall(r"^lost .*", output, re.MULTILINE)
    assert records[-1]["bytes_as_formula"]
    assert records[-2]["loss"] < records[0]["loss"]
    faults.saved(40)(tmp_path)


APART = """
from mpicoll.training import elastic, optimizers
finish, step, steps = DDP.finish, optimizers.AdamW.step, []
def late(self):
    finish(self)
    steps.append(0)
    if len(steps) == 5 and launched_rank() == 2:
        self.comm.allreduce(np.ones(1))  # nobody else does; the others make the step
def dying(self):
    step(self)
    if len(steps) == 5 and launched_rank() == 1:
        note()
        os.kill(os.getpid(), signal.SIGKILL)
DDP.finish, optimizers.AdamW.step = late, dying
"""


def test_who_is_a_step_behind_catches_up(vendor, tmp_path):
    only_open_mpi(vendor)
    run(APART, [], vendor, tmp_path, r"lost rank 1 after step 5: 2 go on(.|\n)*replicas +2, bit-identical")


def test_the_report_finds_a_rank_that_did_not_catch_up(vendor, tmp_path):
    only_open_mpi(vendor)
    program = APART + "elastic.catch_up = lambda *_: None\n"
    run(program, [], vendor, tmp_path, r"replicas +2, DIFFERENT: .* of rank\(s\) 1 ", status=bool)


def test_without_fault_tolerance_it_is_an_error_with_the_way_out(mpirun, vendor):
    done = mpirun(2, "-m", "mpicoll.train", "--elastic", *SMALL)
    assert done.returncode == 2, done.stderr
    way_out = "Open MPI from 5.0 on can go on"
    if vendor == "Open MPI":
        way_out = f"mpirun --with-ft ulfm -np 2 python -m mpicoll.train --elastic {' '.join(SMALL)}"
    assert way_out in done.stderr
    assert done.stderr.count("mpicoll.train: error: ") == 1
