"""Two child processes under a launcher, and what they found, however they end: crash, hang, garbage, silence."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

SECONDS = 60  # that the children may take
PACKAGE = Path(__file__).parent.parent


class Finding(NamedTuple):
    """What was seen.

    Attributes:
        passed: whether every byte was right; None if that cannot be told, since nothing was sent.
        why: the reason, in a sentence.
        output: the end of what the children and their launcher printed, if they failed.
    """

    passed: bool | None
    why: str
    output: str = ""


def find_launcher() -> str | None:
    """The launcher that came with this Python's MPI, else the one on PATH."""
    beside = str(Path(sys.executable).parent)
    found = (shutil.which(name, path=path) for path in (beside, None) for name in ("mpiexec", "mpirun"))
    return next(filter(None, found), None)


def try_memory(launcher: str, memory: str) -> Finding:
    """What two children find that send memory of this kind, "device" or "host"."""
    environment = scrub(os.environ)
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))  # they import what this process would
    try:
        version = subprocess.run(
            [launcher, "--version"], env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=SECONDS
        ).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        return Finding(None, f"the launcher does not tell its version: {error}")
    flags = []
    if b"Open MPI" in version or b"OpenRTE" in version:  # it wants to be told that one core, and root, are meant
        flags = ["--oversubscribe", "--mca", "mpi_yield_when_idle", "1"]
        if os.getuid() == 0:
            environment.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    child = [sys.executable, "-m", f"{__package__}.child", memory, str(SECONDS)]
    return attempt([launcher, *flags, "-n", "2", *child], environment, SECONDS)


# What launchers and batch systems tell a rank. A launcher below it would take its own ranks for those of that job, or
# start them on other nodes. What selects transports stays: OMPI_MCA_pml, UCX_, FI_, MPIR_CVAR_, LD_LIBRARY_PATH, ...
_JOB = re.compile(
    r"(PMI|HYDRA|HYDI|SLURM|SLURMD|PALS|ALPS|PBS|LSB|FLUX|COBALT)_|PE_HOSTFILE|MPI_LOCAL"
    r"|PMIX_(?!MCA_|PREFIX)|PRTE_(?!PREFIX)|OMPI_(?!MCA_|ALLOW_RUN_AS_ROOT)|OPAL_USER_PARAMS_GIVEN"
    r"|OMPI_MCA_(orte|prte|ess|plm|ras|rmaps|pmix|PREFIXES|cpu_type|initial_wdir|num_procs|shmem_RUNTIME_QUERY)"
)


def scrub(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment without what makes this process a rank of a job."""
    return {name: value for name, value in environment.items() if not _JOB.match(name)}


def attempt(command: Sequence[str], environment: Mapping[str, str], seconds: float) -> Finding:
    """What the children that this command starts have said, or how they ended; nothing is left of them."""
    with tempfile.TemporaryFile("w+", errors="replace") as output:  # a pipe would be held open by what survives
        try:
            process = subprocess.Popen(
                command,
                env=environment,
                cwd=PACKAGE.parent,  # `python -m` imports from here first
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            return Finding(None, f"the child cannot be started: {error}")
        status = None
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired:
            pass
        finally:
            _end(process)
        output.seek(0)
        text = output.read()
    said = _said(text)
    if status == 0 and "right" in said and "wrong" not in said:
        return Finding(True, f"{said['right']} messages within and between two processes arrived, every byte as sent")
    why = said.get("wrong") or _ending(status, text, seconds)
    if "began" in said:
        return Finding(False, f"while messages were sent, {why}", text[-2000:])
    hint = f"perhaps {command[0]} is not the launcher of the MPI that Python uses"
    return Finding(None, f"before anything was sent, {why}; {hint}", text[-2000:])


def _end(process: subprocess.Popen[bytes]) -> None:
    """Nothing is left of the process and its group; a launcher that is asked first ends its ranks in other groups."""
    with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(5)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _said(text: str) -> dict[str, object]:
    """All that the children have said."""
    said: dict[str, object] = {}
    for line in text.splitlines():
        if line.startswith("{"):
            with contextlib.suppress(ValueError):
                said.update(json.loads(line))
    return said


_CRASHES = {signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL, signal.SIGFPE, signal.SIGKILL}


def _ending(status: int | None, text: str, seconds: float) -> str:
    """How a child ended that did not say what it found."""
    if status is None:
        return f"the child was not done after {seconds:g} s"
    number = -status if status < 0 else status % 128  # Open MPI adds 128 to the signal that ended a rank
    if number in _CRASHES:
        return f"the child crashed: {signal.Signals(number).name}"
    lines = [line.strip() for line in text.splitlines() if re.search(r"\w", line) and not line.startswith("{")]
    telling = [line for line in lines if re.search("error|abort|fatal", line, re.IGNORECASE)] or lines
    return f"the child ended with status {status}" + (f": {telling[-1][:200]}" if telling else " and said no more")
