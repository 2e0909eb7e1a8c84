"""Jobs of a real Slurm on hosts of scripts/lab, started by the *.sbatch scripts."""

import itertools
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from namespaces import left_over, surroundings

ROOT = Path(__file__).parent.parent.parent
SCRIPTS = ROOT / "scripts"
SLURM = SCRIPTS / "lab" / "slurm.sh"
DAEMONS = ("slurmctld", "slurmd", "munged", "srun")
SMALL = "--layers 1 --width 16 --heads 2 --context 16"

# name: options of sbatch, the script and its arguments; all run in one cluster of two nodes, each in its own folder
JOBS = {
    "train": f"--ntasks-per-node 2 scripts/train.sbatch {SMALL} --steps 20 --metrics 'a *.jsonl'",
    "failing": "--ntasks-per-node 1 scripts/train.sbatch --global-batch 1",
    "signalled": f"--ntasks-per-node 1 scripts/train.sbatch {SMALL} --steps 400 --metrics metrics.jsonl",
    "bench": "--ntasks-per-node 1 scripts/bench.sbatch allreduce -b 1K -e 1K -n 2",
    "scaling": f"--ntasks-per-node 1 scripts/scaling.sbatch {SMALL} --steps 10",
}
ON_H0 = """
for folder in */; do
    (cd "$folder" && export MPICOLL_LAUNCHER="$(<launcher)" && eval sbatch --parsable --output out "$(<job)" >id)
done
for folder in signalled-*; do
    until [ -s "$folder/metrics.jsonl" ]; do sleep 0.05; done
    scancel --batch --signal USR1 "$(<"$folder/id")"
done
while [ -n "$(squeue --noheader)" ]; do sleep 0.1; done
for folder in */; do scontrol show job --oneliner "$(<"$folder/id")" >"$folder/state"; done
"""
# what now and then happens before the program has begun, and is not the program's
FLAWS = {
    ("ompi_mpi_init", "recv_frag_callback_match"): "MPI_Init crashed under srun: github.com/open-mpi/ompi/issues/12495",
    ("mpi/pmi2: value not properly terminated", "MPI_Init"): "Slurm's pmi2 read half of what MPI_Init wrote to it",
}
both = pytest.mark.parametrize("launcher", ["mpirun", "srun"])


class Job:
    """What became of one of JOBS."""

    def __init__(self, folder):
        self.folder, self.out = folder, (folder / "out").read_text()
        self.state = dict(re.findall(r"(JobState|ExitCode|Restarts|NumNodes)=(\S+)", (folder / "state").read_text()))

    def records(self, name):
        return list(map(json.loads, (self.folder / name).read_text().splitlines()))


@pytest.fixture(scope="module")
def launchers(needs):
    """The launchers that this environment's MPI has in Slurm, by name."""
    if missing := [name for name in DAEMONS if not shutil.which(name)]:
        hint = subprocess.run([SLURM, "1", "true"], capture_output=True, text=True, check=False).stderr.strip()
        pytest.skip(f"there is no {', '.join(missing)}; {hint}")
    mpirun = Path(sys.executable).parent / "mpirun"
    version = subprocess.run([mpirun, "--version"], capture_output=True, text=True, check=True).stdout
    return {"mpirun": "mpirun", "srun": f"srun --mpi={'pmix' if 'Open MPI' in version else 'pmi2'}"}


@pytest.fixture(scope="module")
def jobs(lab, launchers, tmp_path_factory):
    """jobs(name, launcher): the Job, which has ended; all were submitted at once."""
    top = tmp_path_factory.mktemp("slurm")
    for (name, job), (launcher, words) in itertools.product(JOBS.items(), launchers.items()):
        folder = top / f"{name}-{launcher}"
        folder.mkdir()
        (folder / "scripts").symlink_to(SCRIPTS)
        (folder / "job").write_text(job)
        (folder / "launcher").write_text(words)
    done = lab(2, "bash", "-c", f"set -e; cd {top}; {ON_H0}", script="slurm.sh")
    assert done.returncode == 0, done.stderr

    def job(name, launcher):
        found = Job(top / f"{name}-{launcher}")
        for signature, reason in FLAWS.items():
            if all(words in found.out for words in signature):
                pytest.skip(reason)
        return found

    return job


@both
def test_train_runs_on_all_nodes_with_the_arguments_as_given(jobs, launcher):
    job = jobs("train", launcher)
    assert job.state == {"JobState": "COMPLETED", "ExitCode": "0:0", "Restarts": "0", "NumNodes": "2"}, job.out
    summary = job.records("a *.jsonl")[-1]
    assert (summary["world_size"], summary["steps"]) == (4, 20)
    assert len(list(job.folder.glob("checkpoints/*/step-00000020.*"))) == 1


@both
def test_a_job_fails_as_its_training_does(jobs, launcher):
    job = jobs("failing", launcher)
    assert job.state == {"JobState": "FAILED", "ExitCode": "2:0", "Restarts": "0", "NumNodes": "2"}, job.out
    assert "mpicoll.train: error: " in job.out


@both
def test_a_job_whose_time_is_nearly_over_saves_comes_back_and_goes_on(jobs, launcher):
    job = jobs("signalled", launcher)
    assert job.state == {"JobState": "COMPLETED", "ExitCode": "0:0", "Restarts": "1", "NumNodes": "2"}, job.out
    stopped = int(re.search(r"ended by SIGUSR1 to rank \d after step (\d+) of 400", job.out)[1])
    assert f"step {stopped} of 400 is made" in job.out
    *steps, summary = job.records("metrics.jsonl")
    assert [step["step"] for step in steps] == list(range(1, 401))
    assert summary["resumed_at"] == stopped
    assert summary["replicas_identical"]


@both
def test_bench_measures_what_it_is_told(jobs, launcher):
    job = jobs("bench", launcher)
    assert job.state["JobState"] == "COMPLETED", job.out
    assert re.search(r"^ +1024 ", job.out, re.MULTILINE), job.out


@both
def test_scaling_trains_on_parts_of_the_nodes_and_shows_all_in_one_table(jobs, launcher):
    job = jobs("scaling", launcher)
    assert job.state["JobState"] == "COMPLETED", job.out
    (folder,) = job.folder.glob("scaling-*")
    head, *rows = (folder / "table.txt").read_text().splitlines()
    assert head.split() == ["nodes", "ranks", "batch", "step", "ms", "waiting", "samples/s", "efficiency"]
    assert [row.split()[:4] for row in rows] == [
        ["weak", "1", "1", "12"],
        ["weak", "2", "2", "24"],
        ["strong", "1", "1", "24"],
        ["strong", "2", "2", "24"],
    ]
    assert (folder / "scaling.svg").stat().st_size > 1000


def test_it_is_gone_when_its_command_has_ended(lab, launchers):
    before = surroundings()
    done = lab(2, "bash", "-c", "srun -N 2 readlink /proc/self/ns/net /proc/self/ns/pid; exit 7", script="slurm.sh")
    assert done.returncode == 7, done.stderr
    namespaces = set(done.stdout.split())
    assert len(namespaces) == 3  # two networks, one set of processes
    assert not left_over(namespaces)
    assert surroundings() == before


class TestWithoutASlurm:
    """What is told where there is none; this needs neither root nor Slurm."""

    @pytest.fixture
    def run(self, tmp_path):
        """run(script, arguments..., **environment): its end and its errors, with nothing on PATH but bash and a few."""
        for name in ("bash", "dirname", "cat"):
            (tmp_path / name).symlink_to(shutil.which(name))
        (tmp_path / "id").write_text("#!/bin/sh\necho 0\n")
        (tmp_path / "id").chmod(0o755)

        def run(script, *arguments, **environment):
            words = [shutil.which("bash"), SCRIPTS / script, *arguments]
            env = {"PATH": str(tmp_path), **environment}
            done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
            return done.returncode, done.stderr

        return run

    def test_no_packages(self, run):
        status, told = run("lab/slurm.sh", "2", "true")
        assert status == 1
        assert told.startswith("lab: there is no munged: apt-get install --no-install-recommends slurmctld ")

    @pytest.mark.parametrize("arguments", [[], ["2"], ["0", "true"], ["two", "true"]])
    def test_wrong_arguments(self, run, arguments):
        status, told = run("lab/slurm.sh", *arguments)
        assert status == 2
        assert told.startswith("usage: scripts/lab/slurm.sh HOSTS COMMAND...\n")

    @pytest.mark.parametrize("script", ["train.sbatch", "bench.sbatch", "scaling.sbatch"])
    def test_the_batch_scripts_say_what_they_need(self, run, tmp_path, script):
        status, told = run(script)
        assert status != 0
        assert told.endswith("SLURM_SUBMIT_DIR: is not set: call this by sbatch\n")
        job = {"SLURM_SUBMIT_DIR": str(tmp_path), "SLURM_JOB_NAME": "job"}
        (tmp_path / "scripts").symlink_to(SCRIPTS)
        status, told = run(script, **job)
        assert status == 1
        assert "job: no python, which cannot import mpicoll: before sbatch, activate an environment" in told
        (tmp_path / "python").write_text("#!/bin/sh\n")
        (tmp_path / "python").chmod(0o755)
        assert run(script, **job) == (1, "job: there is no mpirun: load the MPI's module, or set MPICOLL_LAUNCHER\n")
