"""Whole programs under the mpirun of this environment."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

MPIRUN = Path(sys.executable).parent / "mpirun"


@pytest.fixture(scope="session")
def mpirun(tmp_path_factory):
    """mpirun(size, program or arguments, **environment): the finished process; a hang is a failure after 60 s.

    It runs in `mpirun.folder`.
    """
    version = subprocess.run([MPIRUN, "--version"], capture_output=True, text=True, check=True).stdout
    flags = ["--oversubscribe", "--mca", "mpi_yield_when_idle", "1"] if "Open MPI" in version else []
    as_root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"} if os.getuid() == 0 else {}
    folder = tmp_path_factory.mktemp("programs")

    def run(size, *arguments, **environment):
        if len(arguments) == 1:  # the text of a program
            program = folder / "program.py"
            program.write_text(arguments[0])
            arguments = [program]
        return subprocess.run(
            [MPIRUN, *flags, "-np", str(size), sys.executable, *arguments],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            cwd=folder,
            env={**os.environ, **as_root, **environment},
        )

    run.folder = folder
    return run
