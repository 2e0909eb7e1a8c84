"""The files in hostfiles/ say how they are used, and the one for this machine works as it says."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
FOLDER = ROOT / "hostfiles"


def command(file):
    """The words of the command in the first line: it names the file and starts as many ranks as the hosts take."""
    first, *lines = file.read_text().splitlines()
    assert first.startswith("# mpirun "), first
    words = first.removeprefix("# ").split()
    assert f"hostfiles/{file.name}" in words
    takes = [int((re.findall(r"(?::| slots=)(\d+)$", line) or [1])[0]) for line in lines if not line.startswith("#")]
    assert words[words.index("-np") + 1] == str(sum(takes))
    assert words[-3:] == ["python", "-m", "mpicoll.train"]
    return words


def test_each_begins_with_a_command_that_uses_it():
    files = {file.name: command(file) for file in FOLDER.iterdir()}
    assert set(files) == {"localhost", "mpich-two-nodes", "openmpi-two-nodes"}


@pytest.mark.parametrize(
    "text",
    [
        "a:8\n",
        "# mpirun -f hostfiles/other -np 8 python -m mpicoll.train\na:8\n",
        "# mpirun -f hostfiles/file -np 8 python -m mpicoll.train\na\na:4\n",
        "# mpirun -f hostfiles/file -np 8 python -m mpicoll.tarin\na slots=8\n",
    ],
)
def test_one_that_does_not_is_found(tmp_path, text):
    file = tmp_path / "file"
    file.write_text(text)
    with pytest.raises(AssertionError):
        command(file)


def test_the_command_for_this_machine_starts_all_ranks_here():
    program = "from mpi4py import MPI; import os; w = MPI.COMM_WORLD; os.write(1, f'{w.rank}/{w.size}\\n'.encode())"
    words = [*command(FOLDER / "localhost")[:-2], "-c", program]
    as_root = dict.fromkeys(["OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"], "1")
    env = os.environ | as_root | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(words, cwd=ROOT, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert sorted(done.stdout.split()) == [f"{rank}/8" for rank in range(8)], done.stderr
