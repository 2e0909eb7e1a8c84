"""Whether MPI takes device memory is found out by a child under guard; every fault of the child is named."""

import importlib
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mpicoll import probe
from mpicoll.probe import guard

BEGUN = """print('{"began": true}', flush=True);"""


@pytest.fixture(autouse=True)
def _alone(monkeypatch, tmp_path):
    monkeypatch.delenv("MPICOLL_CUDA", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    probe.cuda_aware.cache_clear()
    yield
    probe.cuda_aware.cache_clear()


def attempt(program, seconds=60):
    return guard.attempt([sys.executable, "-c", program], os.environ, seconds)


# what the user says


@pytest.mark.parametrize("word", ["aware", "staged"])
def test_the_users_word_is_taken(monkeypatch, word):
    monkeypatch.setenv("MPICOLL_CUDA", word)
    assert probe.cuda_aware() == (word == "aware", f"MPICOLL_CUDA is '{word}'")


@pytest.mark.parametrize("word", ["", "Aware", "1"])
def test_another_word_is_refused(monkeypatch, word):
    monkeypatch.setenv("MPICOLL_CUDA", word)
    with pytest.raises(ValueError, match=f"MPICOLL_CUDA is '{word}'; it can be 'aware' or 'staged'"):
        probe.cuda_aware()


def test_without_a_gpu_nothing_is_started_or_kept(monkeypatch, tmp_path):
    monkeypatch.setattr(probe.gpu, "find", lambda: (0, "it was sold"))
    monkeypatch.setattr(probe, "find_launcher", None)  # a call would fail
    assert probe.cuda_aware() == (False, "there is no GPU: it was sold")
    assert not list(tmp_path.iterdir())


# what a child does


def test_a_child_that_is_content_passes():
    found = attempt(BEGUN + """print('half a line'); print('\\n{"right": 4}')""")
    assert found == (True, "4 messages within and between two processes arrived, every byte as sent", "")


@pytest.mark.parametrize(
    ("program", "told"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "the child crashed: SIGSEGV"),
        ("raise SystemExit(128 + 7)", "the child crashed: SIGBUS"),  # as Open MPI's launcher says it
        ("raise SystemExit(6)", "the child crashed: SIGABRT"),  # as MPICH's says it
        ("", "the child ended with status 0 and said no more"),
        ("""print('{"right": 4')""", "the child ended with status 0 and said no more"),  # cut off
        (
            "print('fatal: no such device\\nExit code: 7\\n-----')",
            "the child ended with status 0: fatal: no such device",
        ),
        ("raise RuntimeError('no such device')", "the child ended with status 1: RuntimeError: no such device"),
        ("""print('{"wrong": "content is wrong"}')""", "content is wrong"),
        ("""print('{"right": 4}'); raise SystemExit(3)""", "the child ended with status 3"),
        ("""print('{"right": 4}\\n{"wrong": "content is wrong"}')""", "content is wrong"),
    ],
)
def test_a_child_that_fails_is_named(program, told):
    early, late = attempt(program), attempt(BEGUN + program)
    assert early.passed is None
    assert early.why.startswith(f"before anything was sent, {told}")
    assert early.why.endswith(f"perhaps {sys.executable} is not the launcher of the MPI that Python uses")
    assert late.passed is False
    assert late.why.startswith(f"while messages were sent, {told}")


def test_a_child_that_hangs_is_ended():
    found = attempt("import threading; threading.Event().wait()", seconds=0.2)
    assert not found.passed
    assert "the child was not done after 0.2 s" in found.why


DEAF = """
import signal, subprocess

def deaf():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("both run", flush=True)

subprocess.run(["sleep", "60"], preexec_fn=deaf)
"""


def test_nothing_is_left_of_a_group_that_is_ended():
    process = subprocess.Popen([sys.executable, "-c", DEAF], stdout=subprocess.PIPE, start_new_session=True)
    with process.stdout as output:
        assert output.readline() == b"both run\n"
        guard._end(process)
        assert process.returncode == -signal.SIGTERM
        assert select.select([output], [], [], 10)[0], "somebody lives and holds the other end"


# who starts it


def launcher(folder, version):
    """A launcher of that version that starts nothing, and says how it was called and of which job it is a rank."""
    file = folder / "mpiexec"
    file.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo "{version}" || echo "called: $*,$(env | grep ^PMI)"\n')
    file.chmod(0o700)
    return str(file)


def test_the_launcher_beside_python_comes_before_that_on_the_path(monkeypatch, tmp_path):
    beside, on_path = tmp_path / "beside", tmp_path / "path"
    for folder in beside, on_path:
        folder.mkdir()
    monkeypatch.setattr(guard.sys, "executable", str(beside / "python"))
    monkeypatch.setenv("PATH", str(on_path))
    assert guard.find_launcher() is None
    on_path = launcher(on_path, "")
    assert guard.find_launcher() == on_path
    beside = launcher(beside, "")
    assert guard.find_launcher() == beside


@pytest.mark.parametrize(
    ("version", "flags"),
    [
        ("mpiexec (Open MPI) 5.0.11", "--oversubscribe --mca mpi_yield_when_idle 1 "),
        ("mpiexec (OpenRTE) 4.1.4", "--oversubscribe --mca mpi_yield_when_idle 1 "),
        ("HYDRA build details", ""),
    ],
)
def test_only_open_mpi_gets_its_flags(monkeypatch, tmp_path, version, flags):
    monkeypatch.setenv("PMI_RANK", "1")
    found = guard.try_memory(launcher(tmp_path, version), "host")
    called = f"called: {flags}-n 2 {sys.executable} -m mpicoll.probe.child host 60,"
    assert found.output == f"{called}\n"


def test_a_launcher_that_cannot_be_started_is_named(monkeypatch, tmp_path):
    assert "the launcher does not tell its version" in guard.try_memory(str(tmp_path / "mpiexec"), "host").why
    assert "the child cannot be started" in guard.attempt([str(tmp_path / "mpiexec")], os.environ, 60).why
    monkeypatch.setattr(probe, "find_launcher", lambda: None)
    finding, file = probe.look("host")
    assert finding == (None, "there is no mpiexec or mpirun, neither beside Python nor on PATH", "")
    assert file is None


OF_A_JOB = """
    PMI_RANK PMI_FD PMIX_RANK PMIX_SERVER_URI41 PRTE_LAUNCHED OMPI_COMM_WORLD_RANK OMPI_UNIVERSE_SIZE OMPI_ARGV
    OMPI_MCA_initial_wdir OMPI_MCA_num_procs OMPI_MCA_orte_hnp_uri OMPI_MCA_ess OPAL_USER_PARAMS_GIVEN
    MPI_LOCALRANKID MPI_LOCALNRANKS HYDI_CONTROL_FD HYDRA_HOST_FILE SLURM_JOB_ID SLURMD_NODENAME PBS_NODEFILE"""
OF_THE_USER = """
    OMPI_MCA_pml OMPI_MCA_btl OMPI_MCA_opal_common_ucx_tls OMPI_MCA_mpi_yield_when_idle OMPI_ALLOW_RUN_AS_ROOT
    OPAL_PREFIX PMIX_MCA_gds PMIX_PREFIX PRTE_PREFIX UCX_TLS FI_PROVIDER MPIR_CVAR_CH4_NETMOD
    MPICH_GPU_SUPPORT_ENABLED LD_LIBRARY_PATH CUDA_VISIBLE_DEVICES PATH HOME PYTHONPATH"""


def test_a_child_is_no_rank_of_the_job_but_uses_its_transports():
    environment = dict.fromkeys((OF_A_JOB + OF_THE_USER).split(), "7")
    assert guard.scrub(environment) == dict.fromkeys(OF_THE_USER.split(), "7")


# what is kept


def test_what_was_found_is_kept_also_of_failure(monkeypatch):
    answers = iter([guard.Finding(False, "the child crashed"), guard.Finding(True, "it is mended")])
    monkeypatch.setattr(probe.gpu, "find", lambda: (1, ""))
    monkeypatch.setattr(probe, "_key", lambda *_: "key")
    monkeypatch.setattr(probe, "find_launcher", lambda: "mpiexec")
    monkeypatch.setattr(probe, "try_memory", lambda *_: next(answers))
    assert probe.cuda_aware() == (False, "the child crashed; MPICOLL_CUDA=aware overrides this")
    first, file = probe.look("device")
    assert first.why == "the child crashed"
    assert file.parent.stat().st_mode & 0o777 == 0o700
    again, same = probe.look("device", fresh=True)
    assert (again.why, same) == ("it is mended", file)
    assert probe.look("device") == (again, file)


@pytest.mark.parametrize("damage", [b"", b"{", b"\xff\xfe", b"[1]", b"{}", b'{"passed": true, "when": 3}'])
def test_a_damaged_file_is_written_anew(tmp_path, damage):
    file, finding = tmp_path / "file.json", guard.Finding(True, "all is well")
    file.write_bytes(damage)
    assert probe.cached(file, lambda: finding) == finding
    assert probe.cached(file, None) == finding


@pytest.mark.parametrize("make", [Path.touch, lambda folder: (folder.mkdir(), folder.chmod(0o755))])
def test_a_folder_that_others_can_write_is_not_used(monkeypatch, tmp_path, make):
    make(tmp_path / f"mpicoll-{os.getuid()}")
    finding = guard.Finding(True, "all is well")
    monkeypatch.setattr(probe, "find_launcher", lambda: "mpiexec")
    monkeypatch.setattr(probe, "try_memory", lambda *_: finding)
    assert probe.look("host") == (finding, None)


def test_what_changes_the_answer_changes_the_key(monkeypatch, tmp_path):
    file = launcher(tmp_path, "")
    first = probe._key(file, "host")
    for name in [*OF_A_JOB.split(), "CUDA_VISIBLE_DEVICES"]:  # the answer is the node's, not a rank's
        monkeypatch.setenv(name, "7")
    assert probe._key(file, "host") == first
    keys = {first}
    for name in ("UCX_TLS", "OMPI_MCA_pml", "LD_LIBRARY_PATH", "MPIR_CVAR_CH4_NETMOD"):
        monkeypatch.setenv(name, "other")
        keys.add(probe._key(file, "host"))
    os.utime(file, (1, 1))
    keys.add(probe._key(file, "host"))
    assert len(keys) == 6


ASKS = """
import sys, time
from pathlib import Path
from mpicoll import probe

def ask():
    with asked.open("a") as log:
        log.write("asked ")
    for _ in range(20 if len(asked.read_text()) == 6 else 0):  # time for the other one to ask, wrongly
        time.sleep(0.01)
    return probe.Finding(True, "all is well")

folder = Path(sys.argv[1])
asked = folder / "asked"
print("ready", flush=True)
sys.stdin.readline()
print(probe.cached(folder / "file.json", ask).why)
"""


def test_processes_that_ask_at_the_same_time_try_once(tmp_path):
    command = [sys.executable, "-c", ASKS, str(tmp_path)]
    both = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    for process in both:
        process.stdout.readline()
    for process in both:
        process.stdin.write("go\n")
        process.stdin.flush()
    assert [process.communicate(timeout=60)[0] for process in both] == ["all is well\n"] * 2
    assert (tmp_path / "asked").read_text() == "asked "


# the command


@pytest.fixture
def command():
    return importlib.import_module("mpicoll.probe.__main__").main


@pytest.mark.parametrize(("passed", "status"), [(True, 0), (False, 0), (None, 1)])
def test_the_command_says_what_was_found_and_whether_it_could_be_told(monkeypatch, capsys, command, passed, status):
    main = sys.modules["mpicoll.probe.__main__"]
    monkeypatch.setattr(main, "library", lambda: "an MPI")
    monkeypatch.setattr(main, "look", lambda *_: (guard.Finding(passed, "this is why", "it said"), Path("cache.json")))
    monkeypatch.setattr(probe.gpu, "find", lambda: (2, ""))
    monkeypatch.setattr(probe.gpu, "name", lambda _: "a GPU")
    assert command([]) == status
    told = capsys.readouterr().out
    assert ("CUDA-aware: " if passed else "staged through host memory: ") + "this is why" in told
    for words in ("an MPI", "2, the first is a GPU", "cache.json; --fresh tries again", "it said"):
        assert words in told


def test_rank_0_alone_prints_and_fails(monkeypatch, capsys, command):
    monkeypatch.setenv("PMI_RANK", "1")
    assert command(["--memory", "paper"]) == 0
    monkeypatch.setenv("PMI_RANK", "0")
    with pytest.raises(SystemExit, match="2"):
        command(["--memory", "paper"])
    assert capsys.readouterr().err.count("invalid choice: 'paper'") == 1


def test_the_command_takes_the_users_word_or_refuses_it(monkeypatch, capsys, command):
    monkeypatch.setenv("MPICOLL_CUDA", "aware")
    assert command([]) == 0
    assert capsys.readouterr().out == "CUDA-aware: MPICOLL_CUDA is 'aware'\n"
    probe.cuda_aware.cache_clear()
    monkeypatch.setenv("MPICOLL_CUDA", "yes")
    with pytest.raises(SystemExit, match="2"):
        command([])
    assert "MPICOLL_CUDA is 'yes'" in capsys.readouterr().err
