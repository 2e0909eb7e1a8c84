"""The doctor, and what every command says of its launch, as users see them."""

import json
import os
import subprocess
import sys

import pytest

DOCTOR = ("-m", "mpicoll.doctor")


def alone(*words, **environment):
    """The finished process of Python without a launcher."""
    usual = {name: value for name, value in os.environ.items() if not name.startswith(("PMI", "OMPI_COMM", "SLURM"))}
    words = [sys.executable, *words]
    return subprocess.run(words, env=usual | environment, capture_output=True, text=True, timeout=60, check=False)


def test_it_shows_every_finding_and_every_rank_once(mpirun):
    done = mpirun(3, *DOCTOR)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    for name in ("versions", "MPI ", "mpirun", "world", "thread level", "code", "nodes", "cores", "BLAS", "in a node"):
        assert sum(line[12:].startswith(name) for line in lines) == 1, done.stdout
    head = next(i for i, line in enumerate(lines) if line.startswith("rank "))
    assert [line.split()[0] for line in lines[head + 1 : head + 4]] == ["0", "1", "2"]
    assert "good        world         3 ranks, as many as " in done.stdout
    assert lines[-1].endswith(", 0 broken")


def test_the_short_form_leaves_out_what_is_good():
    done = alone("-m", "mpicoll")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "good  " not in done.stdout
    assert done.stdout.endswith(" 0 broken; python -m mpicoll.doctor shows all\n")


def test_json_is_all_that_is_printed(mpirun):
    done = mpirun(2, *DOCTOR, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert len(found["ranks"]) == 2
    assert [(link["a"], link["b"], link["near"]) for link in found["links"]] == [(0, 1, True)]


UNLIKE = """
import sys
from mpicoll import doctor, runtime
from mpicoll.doctoring import software

honest = software.code
software.code = lambda: honest() | ({"jobs.py": "another"} if runtime.launched_rank() == 1 else {})
sys.exit(doctor.main([]))
"""


def test_a_rank_with_other_code_is_named(mpirun):
    done = mpirun(2, UNLIKE)
    assert done.returncode == 1
    assert "broken      code" in done.stdout
    assert " is not as rank 0: mpicoll/jobs.py differs  ->  the same environment" in done.stdout


STUCK = """
import sys, time
from mpicoll import doctor, runtime
from mpicoll.doctoring import network

honest = doctor.Watch.stage

def stage(self, what):
    doctor.SECONDS = 0.5 if "to and fro" in what else 60.0
    honest(self, what)

doctor.Watch.stage = stage
if runtime.launched_rank() == 1:
    network.ping_pong = lambda *arguments: time.sleep(1000)
sys.exit(doctor.main([]))
"""


def test_a_network_that_hangs_ends_the_job_and_is_told(mpirun):
    done = mpirun(2, STUCK)
    assert done.returncode != 0
    assert " hangs for 0.5 s while messages go to and fro between two ranks" in done.stderr


SINGLETON = "started 2 processes, but each is an MPI world of its own, of size 1"


@pytest.mark.parametrize("command", ["bench", "doctor"])
def test_torchruns_processes_are_told_to_use_mpirun(command):
    words = ["-m", f"mpicoll.{command}", *(["allreduce"] if command == "bench" else [])]
    done = alone(*words, RANK="0", WORLD_SIZE="2")
    told = done.stdout if command == "doctor" else done.stderr
    assert done.returncode == (1 if command == "doctor" else 2), done.stderr
    assert told.count(f"torchrun {SINGLETON}") == 1
    assert f"mpirun -np 2 python {' '.join(words)}" in told
    assert "Traceback" not in done.stderr


def test_only_the_launchers_rank_0_says_so():
    done = alone("-m", "mpicoll.train", SLURM_PROCID="1", SLURM_STEP_NUM_TASKS="2")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


TRAIN = (
    "-m",
    "mpicoll.train",
    "--model",
    "mlp",
    "--steps",
    "1",
    "--hidden",
    "8",
    "--layers",
    "1",
    "--global-batch",
    "24",
)


def test_a_batch_script_and_a_singleton_that_is_meant_run():
    batch = alone(*TRAIN, SLURM_JOB_ID="7", SLURM_NTASKS="4", SLURM_PROCID="0", SLURM_LOCALID="0")
    assert batch.returncode == 0, batch.stderr
    meant = alone(*TRAIN, RANK="0", WORLD_SIZE="2", MPICOLL_SINGLETON="1")
    assert meant.returncode == 0, meant.stderr


ONE_CORE = """
import os, sys
os.sched_setaffinity(0, {min(os.sched_getaffinity(os.getppid()))})
from mpicoll import train
sys.exit(train.main(sys.argv[1:]))
"""


def test_ranks_that_share_a_core_are_told_once(mpirun):
    program = mpirun.folder / "one_core.py"
    program.write_text(ONE_CORE)
    done = mpirun(2, program, *TRAIN[2:])
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("mpicoll.train: note: 2 ranks share 1 core on ") == 1
    assert "note" not in done.stdout
