"""Jobs of a real Slurm on hosts of scripts/lab, started by the *.sbatch scripts."""

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
DAEMONS = ("slurmctld", "slurmd", "munged", "srun")
SMALL = "--layers 1 --width 16 --heads 2 --context 16"

# submit OPTIONS...: its output is in $job.out. ended: how the job did, once it did
FUNCTIONS = """
submit() { job=$(sbatch --parsable --output "$PWD/%j.out" --chdir "$PWD" "$@"); }
shown() { scontrol show job --oneliner "$job" | grep -oE "(JobState|ExitCode|Restarts|NumNodes)=[^ ]*"; }
ended() { while shown | grep -qE "PENDING|RUNNING|COMPLETING"; do sleep 0.05; done; shown; cat "$job.out"; }
"""


@pytest.fixture(scope="module")
def launchers(needs):
    """The launchers that this environment's MPI has in Slurm, by name."""
    if missing := [name for name in DAEMONS if not shutil.which(name)]:
        hint = subprocess.run([SCRIPTS / "lab" / "slurm.sh", "1", "true"], capture_output=True, text=True, check=False)
        pytest.skip(f"there is no {', '.join(missing)}; {hint.stderr.strip()}")
    mpirun = Path(sys.executable).parent / "mpirun"
    version = subprocess.run([mpirun, "--version"], capture_output=True, text=True, check=True).stdout
    return {"mpirun": "mpirun", "srun": f"srun --mpi={'pmix' if 'Open MPI' in version else 'pmi2'}"}


@pytest.fixture
def slurm(lab, launchers, tmp_path):
    """slurm(text of a bash script, launcher): what it printed, on h0 of two nodes; jobs run in this checkout."""
    (tmp_path / "scripts").symlink_to(SCRIPTS)

    def run(script, launcher="mpirun"):
        script = f"set -e; cd {tmp_path}{FUNCTIONS}{script}"
        done = lab(2, "bash", "-c", script, script="slurm.sh", MPICOLL_LAUNCHER=launchers[launcher])
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def records(path):
    return list(map(json.loads, path.read_text().splitlines()))


@pytest.mark.parametrize("launcher", ["mpirun", "srun"])
def test_train_runs_on_all_nodes_with_the_arguments_as_given(slurm, tmp_path, launcher):
    arguments = f"{SMALL} --steps 20 --metrics 'a *.jsonl'"
    told = slurm(f"submit --ntasks-per-node 2 scripts/train.sbatch {arguments}; ended", launcher)
    assert re.findall(r"JobState=(\w+)|ExitCode=(\S+)|NumNodes=(\d+)", told) == [
        ("COMPLETED", "", ""),
        ("", "0:0", ""),
        ("", "", "2"),
    ]
    summary = records(tmp_path / "a *.jsonl")[-1]
    assert (summary["world_size"], summary["steps"]) == (4, 20)
    assert len(list(tmp_path.glob("checkpoints/1/step-00000020.*"))) == 1


@pytest.mark.parametrize("launcher", ["mpirun", "srun"])
def test_a_job_fails_as_its_training_does(slurm, launcher):
    told = slurm("submit --ntasks-per-node 1 scripts/train.sbatch --global-batch 1; ended", launcher)
    assert "JobState=FAILED" in told
    assert "ExitCode=2:0" in told
    assert "mpicoll.train: error: " in told


@pytest.mark.parametrize("launcher", ["mpirun", "srun"])
def test_a_job_whose_time_is_nearly_over_saves_comes_back_and_goes_on(slurm, tmp_path, launcher):
    arguments = f"{SMALL} --steps 400 --metrics metrics.jsonl"
    script = """
    until [ -s metrics.jsonl ]; do sleep 0.05; done
    scancel --batch --signal USR1 $job
    until shown | grep -q Restarts=1; do sleep 0.05; done
    ended
    """
    told = slurm(f"submit --ntasks-per-node 1 scripts/train.sbatch {arguments}\n{script}", launcher)
    assert "JobState=COMPLETED" in told
    stopped = int(re.search(r"ended by SIGUSR1 to rank \d after step (\d+) of 400", told)[1])
    assert f"step {stopped} of 400 is made" in told
    *steps, summary = records(tmp_path / "metrics.jsonl")
    assert [step["step"] for step in steps] == list(range(1, 401))
    assert summary["resumed_at"] == stopped
    assert summary["replicas_identical"]


def test_bench_and_scaling_in_one_allocation_each(slurm, tmp_path):
    told = slurm(f"""
    submit --ntasks-per-node 1 scripts/bench.sbatch allreduce -b 1K -e 1K -n 2
    ended
    submit --ntasks-per-node 1 scripts/scaling.sbatch {SMALL} --steps 20
    ended""")
    assert told.count("JobState=COMPLETED") == 2, told
    assert re.search(r"^ +1024 ", told, re.M), told
    head, *rows = (tmp_path / "scaling-2" / "table.txt").read_text().splitlines()
    assert head.split() == ["nodes", "ranks", "batch", "step", "ms", "waiting", "samples/s", "efficiency"]
    assert [row.split()[:4] for row in rows] == [
        ["weak", "1", "1", "12"],
        ["weak", "2", "2", "24"],
        ["strong", "1", "1", "24"],
        ["strong", "2", "2", "24"],
    ]
    assert (tmp_path / "scaling-2" / "scaling.svg").stat().st_size > 1000


def test_scaling_runs_on_parts_of_the_nodes_by_srun(slurm, tmp_path):
    told = slurm(f"submit --ntasks-per-node 1 scripts/scaling.sbatch {SMALL} --steps 10; ended", "srun")
    assert "JobState=COMPLETED" in told, told
    assert len((tmp_path / "scaling-1" / "table.txt").read_text().splitlines()) == 5


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
