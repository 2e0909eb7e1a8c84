"""What launchers tell, what a rank makes of it, and what is said of ranks that did not find each other."""

import os
import sys
from pathlib import Path

import pytest
from mpi4py import MPI

import mpicoll
from mpicoll import launch, runtime
from mpicoll.launch import Place

OPEN_MPI = {"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_RANK": "1", "PMIX_RANK": "1"}
HYDRA = {"PMI_SIZE": "4", "PMI_RANK": "1", "MPI_LOCALRANKID": "1"}
STEP = {"SLURM_NTASKS": "6", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "6", "SLURM_PROCID": "5"}
BATCH = {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "6", "SLURM_NPROCS": "6", "SLURM_PROCID": "0", "SLURM_LOCALID": "0"}
SHELL = {"SLURM_NTASKS": "6", "SLURM_STEP_ID": "4294967290", "SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0"}
SALLOC = {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "6", "SLURM_NNODES": "2"}
TORCH = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1"}
ALL = {*OPEN_MPI, *HYDRA, *STEP, *BATCH, *TORCH, "SLURM_STEP_TASKS_PER_NODE", "SLURM_NODEID", "SLURM_CPUS_ON_NODE"}


@pytest.fixture
def environment(monkeypatch):
    """environment(variables): of what launchers set, this process has these and no others."""

    def put(variables):
        for name in {*ALL, "MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE", launch.VARIABLE}:
            monkeypatch.delenv(name, raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

    return put


@pytest.mark.parametrize(
    ("variables", "by", "size", "rank"),
    [
        ({}, "", 1, 0),
        (OPEN_MPI, "Open MPI's mpirun", 4, 1),
        (HYDRA, "MPICH's mpirun", 4, 1),
        (STEP, "srun", 6, 5),
        (STEP | {"PMI_SIZE": "6", "PMI_RANK": "5"}, "srun", 6, 5),  # --mpi=pmi2
        ({"PMI_SIZE": "3", "PMI_RANK": "2"}, "a launcher that speaks PMI", 3, 2),
        (TORCH, "torchrun", 2, 1),
        (BATCH, "", 1, 0),
        (SHELL, "srun", 1, 0),
        (SALLOC, "", 1, 0),
        (BATCH | TORCH, "torchrun", 2, 1),
        (BATCH | HYDRA, "MPICH's mpirun", 4, 1),  # an mpirun inside a job
        (STEP | {"SLURM_STEP_NUM_TASKS": "2"} | OPEN_MPI, "Open MPI's mpirun", 4, 1),  # its daemons are a step
        ({"WORLD_SIZE": "4"}, "", 1, 0),  # as job files export it, for ranks that are still to be started
        ({"RANK": "0", "WORLD_SIZE": ""}, "", 1, 0),
    ],
)
def test_the_environment_tells_who_started_how_many(environment, variables, by, size, rank):
    environment(variables)
    assert runtime.launch() == (by, size)
    assert runtime.launched_rank() == rank


@pytest.mark.parametrize(
    ("variables", "size"),
    [
        ({}, 1),
        ({"MPI_LOCALNRANKS": "3", **HYDRA}, 3),
        ({"OMPI_COMM_WORLD_LOCAL_SIZE": "3", **OPEN_MPI}, 3),
        (STEP | {"SLURM_STEP_TASKS_PER_NODE": "2(x2),1", "SLURM_NODEID": "1"}, 2),
        (STEP | {"SLURM_STEP_TASKS_PER_NODE": "2(x2),1", "SLURM_NODEID": "2"}, 1),
        (STEP | {"SLURM_STEP_TASKS_PER_NODE": "6", "SLURM_NODEID": "0"}, 6),
        (BATCH, 1),
    ],
)
def test_the_launcher_tells_how_many_are_on_the_node(environment, variables, size):
    environment(variables)
    assert runtime.launched_local_size() == size


@pytest.mark.parametrize(
    ("cores", "ranks", "of_all", "share"),
    [
        (64, 1, 64, 64),
        (64, 8, 64, 8),
        (2, 8, 2, 1),
        (1, 2, 64, 1),  # bound to one core each
        (32, 8, 64, 8),  # bound to sockets: 4 on each
        (32, 3, 64, 16),  # and where they cannot be spread evenly, as if the fuller one were everywhere
        (4, 4, 16, 4),  # srun --cpus-per-task
        (64, 4, 16, 4),  # a Slurm that confines nobody
    ],
)
def test_the_share_of_a_rank_is_its_part_of_the_cores_that_it_may_use(cores, ranks, of_all, share):
    assert runtime.share_of(cores, ranks, of_all) == share


def test_what_slurm_gave_to_the_job_bounds_the_cores(environment):
    environment({})
    usual = runtime.cores_of_all()
    assert usual >= len(os.sched_getaffinity(0))
    environment({"SLURM_CPUS_ON_NODE": "1"})
    assert runtime.cores_of_all() == 1
    environment({"SLURM_CPUS_ON_NODE": "1000000"})  # a node that is said to have more than it has
    assert runtime.cores_of_all() == usual


def test_threads_are_limited_before_numpy_loads_or_it_is_told(environment, monkeypatch, capsys):
    environment({"MPI_LOCALNRANKS": "4", **HYDRA, "PMI_RANK": "0"})
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)))
    for name in runtime._THREADS:
        monkeypatch.setenv(name, "")  # so that it is restored
        monkeypatch.delenv(name)
    monkeypatch.delitem(sys.modules, "numpy", raising=False)
    runtime.limit_threads()
    assert {os.environ.pop(name) for name in runtime._THREADS} == {"2"}
    assert capsys.readouterr().err == ""
    monkeypatch.setitem(sys.modules, "numpy", object())
    runtime.limit_threads()
    told = "NumPy was loaded before limit_threads: every rank may use 8 threads where 2 are its share"
    assert capsys.readouterr().err == f"mpicoll: {told}; set OMP_NUM_THREADS=2, or import NumPy later\n"
    runtime.limit_threads()  # now the variables are the user's
    environment({"MPI_LOCALNRANKS": "4", **HYDRA})
    for name in runtime._THREADS:
        monkeypatch.delenv(name, raising=False)
    runtime.limit_threads()  # and another rank is silent
    assert capsys.readouterr().err == ""


COMMAND = ["/usr/bin/python3", "-u", "-m", "mpicoll.train", "--data", "my text.txt"]


@pytest.mark.parametrize(
    ("by", "vendor", "mend"),
    [
        ("srun", "MPICH", "MPICH needs srun --mpi=pmi2 ("),
        ("srun", "Open MPI", "Open MPI needs srun --mpi=pmix ("),
        ("torchrun", "MPICH", "torchrun tells MPI nothing; instead: "),
        ("MPICH's mpirun", "MPICH", "they did not find each other by this launcher; MPICH 5.0 has its own: "),
    ],
)
def test_ranks_that_are_worlds_of_their_own_are_told_the_way_out(by, vendor, mend):
    told = launch.singletons(runtime.Launch(by, 4), vendor, "5.0", COMMAND)
    assert told.startswith(f"{by} started 4 processes, but each is an MPI world of its own, of size 1: {mend}")
    assert "mpirun -np 4 python -u -m mpicoll.train --data 'my text.txt'" in told
    assert told.endswith(" (if single processes are meant: MPICOLL_SINGLETON=1)")


def test_the_launcher_of_another_mpi_is_named(environment, monkeypatch):
    environment(OPEN_MPI)
    monkeypatch.setattr(MPI, "get_vendor", lambda: ("MPICH", (5, 0, 2)))
    with pytest.raises(
        ValueError, match=r"^Open MPI's mpirun started 4 processes, but this Python's MPI is MPICH 5\.0\.2"
    ):
        launch.begin()
    environment(HYDRA)
    monkeypatch.setattr(MPI, "get_vendor", lambda: ("Open MPI", (5, 0, 11)))
    with pytest.raises(
        ValueError, match=r"^MPICH's mpirun started .* wants the mpirun that came with it: .*mpirun -np 4"
    ):
        launch.begin()


def test_a_program_on_the_command_line_does_not_break_the_line():
    told = launch.equivalent(2, ["python", "-c", "import numpy\nprint(1)", "--flag"])
    assert told.endswith("mpirun -np 2 python -c ... --flag")


def test_the_mpirun_beside_python_is_named_if_there_is_one(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert launch.equivalent(2, COMMAND).startswith("mpirun -np 2 ")
    beside = tmp_path / "mpirun"
    beside.touch(0o755)
    assert launch.equivalent(2, COMMAND).startswith(f"{beside} -np 2 ")


@pytest.mark.parametrize("variables", [TORCH, STEP])
def test_a_communicator_of_a_singleton_is_refused_unless_it_is_meant(environment, variables):
    assert MPI.COMM_WORLD.size == 1
    environment(variables)
    with pytest.raises(ValueError, match="each is an MPI world of its own, of size 1"):
        mpicoll.Communicator(MPI.COMM_WORLD)
    with mpicoll.Communicator(MPI.COMM_SELF) as comm:
        assert comm.size == 1
    environment(variables | {launch.VARIABLE: "1"})
    with mpicoll.Communicator(MPI.COMM_WORLD) as comm:
        assert comm.size == 1


@pytest.mark.parametrize("variables", [{}, BATCH, SHELL, SALLOC])
def test_one_process_alone_is_no_singleton(environment, variables):
    environment(variables)
    launch.refuse_singletons(1)


def test_a_world_of_several_is_none_whatever_the_environment_says(environment):
    environment(STEP)
    launch.refuse_singletons(2)


def places(*ranks):
    """Places from (host, cores, cores of all, gpu...)."""
    return [Place(host, tuple(cores), of_all, tuple(gpu)) for host, cores, of_all, *gpu in ranks]


def test_nothing_is_remarked_where_nothing_is_odd():
    assert launch.remarks(places(("a", [0], 2), ("a", [1], 2), ("b", [0, 1], 2), ("b", [0, 1], 2))) == []
    assert launch.remarks(places(("a", [0, 1], 2, "a", None, 0), ("a", [0, 1], 2, "a", None, 1))) == []


@pytest.mark.parametrize(
    ("ranks", "told"),
    [
        (
            [("a", [0, 1], 2)] * 5,
            "5 ranks share 2 cores on a; results are right, times mean little: start 2 ranks there, or use more nodes",
        ),
        (
            [("a", [0, 1], 2)] * 2 + [("b", [0], 1)] * 2,
            "2 ranks share 1 core on b; results are right, times mean little: use fewer per node, or use more nodes",
        ),
        (
            [("a", [0], 8)] * 2 + [("b", [0], 8)] * 2,
            "2 ranks share 1 core on a (and 1 more node), which has 8; they are bound to the same ones: "
            "mpirun --bind-to none",
        ),
        (
            [("a", range(8), 8)] * 3 + [("b", range(8), 8)],
            "a has 3 ranks, b has 1; all wait for the fullest node: mpirun --map-by ppr:N:node (Open MPI) or -ppn N "
            "(MPICH)",
        ),
        (
            [("a", range(8), 8, "a", None, i % 2) for i in range(4)],
            "4 ranks share 2 GPUs on a; as fast is one rank for each GPU",
        ),
    ],
)
def test_what_is_odd_is_one_line(ranks, told):
    assert [str(remark) for remark in launch.remarks(places(*ranks))] == [told]


def test_counts_are_words():
    words = [launch.count(1, "rank"), launch.count(2, "core"), launch.count(1, "process"), launch.count(3, "process")]
    assert words == ["1 rank", "2 cores", "1 process", "3 processes"]


def test_every_command_that_starts_mpi_asks():
    package = Path(launch.__file__).parent
    for command in ("train", "bench", "tune", "experiments", "doctor"):
        text = (package / f"{command}.py").read_text()
        assert "launch.start(" in text or "launch.begin(" in text
        assert "COMM_WORLD" not in text.replace("MPI.COMM_WORLD.Abort", "").replace("MPI.COMM_WORLD.rank", "")
