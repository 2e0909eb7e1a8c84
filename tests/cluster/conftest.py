"""Labs of scripts/lab: hosts, or a Slurm, on this machine."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

LAB = Path(__file__).parent.parent.parent / "scripts" / "lab"
TOOLS = ("ip", "tc", "unshare", "nsenter", "setpriv")
ENVIRONMENT = os.environ | {
    "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    "VIRTUAL_ENV": sys.prefix,
    "OPENBLAS_NUM_THREADS": "1",
}


@pytest.fixture(scope="session")
def needs():
    """Skips where this machine gives no lab, and says why."""
    if os.getuid() != 0:
        pytest.skip("a lab needs root")
    if missing := [tool for tool in TOOLS if not shutil.which(tool)]:
        pytest.skip(f"a lab needs {', '.join(missing)}")
    shape = "tc qdisc add dev lo root tbf rate 1gbit burst 128kb latency 400ms"
    words = ["unshare", "--mount", "--net", "--uts", "--pid", "--fork", *shape.split()]
    tried = subprocess.run(words, capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.skip(f"this kernel gives no lab: {tried.stderr.strip()}")


@pytest.fixture(scope="session")
def lab(needs):
    """lab(arguments...): net.sh, or `script`, has finished with them; a hang is a failure after 60 s."""

    def run(*arguments, script="net.sh"):
        words = [LAB / script, *map(str, arguments)]
        return subprocess.run(words, env=ENVIRONMENT, capture_output=True, text=True, timeout=60, check=False)

    return run
