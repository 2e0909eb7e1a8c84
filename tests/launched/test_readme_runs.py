"""The code in README.md runs as it stands, and names.md names what is there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
README = (ROOT / "README.md").read_text()
NAMES = (ROOT / "mpicoll" / "names.md").read_text()

BEFORE = """
import numpy as np
from mpi4py import MPI
import mpicoll
from mpicoll.training.layers import Linear
from mpicoll.training.models import Sequential

comm = mpicoll.Communicator(MPI.COMM_WORLD)
model = Sequential([Linear("layer", np.ones((3, 2)), np.zeros(2))])
x = np.full((1, 3), float(comm.rank))
"""

# the first line of a block → what holds after it
AFTER = {
    "from mpi4py import MPI": "assert (x == MPI.COMM_WORLD.rank).all() and (y == 1).all() and (mean == 0.5).all()",
}


def blocks():
    """The blocks of Python, without the definition of an algorithm, by their first lines."""
    texts = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    return {text.splitlines()[0]: text for text in texts if not text.startswith("def ")}


def test_every_block_is_run():
    assert set(blocks()) == set(AFTER)


@pytest.mark.parametrize("first_line", AFTER)
def test_a_block_runs_and_does_what_it_says(mpirun, first_line):
    done = mpirun(2, f"{BEFORE}\n{blocks()[first_line]}\n{AFTER[first_line]}\nprint('fine')")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("fine") == 2


def column(number):
    """The cells of this column of the tables in names.md, below each other."""
    return "\n".join(f"|{line.split('|')[number]}|" for line in NAMES.splitlines() if line.endswith("|"))


def test_what_names_says_of_mpicoll_is_there(mpirun):
    named = sorted(set(re.findall(r"\b(?:comm|mpicoll|ddp|handle)\.\w+", column(-2))))
    assert len(named) > 25
    program = BEFORE + "ddp, handle = mpicoll.DistributedDataParallel(model, comm), comm.iallreduce(x)\n"
    done = mpirun(1, f"{program}handle.wait()\n{', '.join(named)}\nprint('fine')")
    assert done.stdout == "fine\n", done.stderr


def test_names_spells_mpi4py_right(mpirun):
    named = sorted(set(re.findall(r"`([A-Z][a-z]\w+)`", column(2))))
    assert len(named) > 15
    done = mpirun(1, f"from mpi4py import MPI\nprint([n for n in {named} if not hasattr(MPI.Intracomm, n)])")
    assert done.stdout.strip() == "[]"


def test_the_launcher_tells_what_names_says(mpirun):
    rows = [line.split("|") for line in NAMES[NAMES.index("| world size") :].splitlines()[:4]]
    told = mpirun(1, "import os; print(*os.environ)").stdout.split()
    mpich, openmpi = ([row[i].strip(" `") for row in rows] for i in (3, 4))
    names = mpich if mpich[0] in told else openmpi
    done = mpirun(2, f"import os; print('<' + ' '.join(os.environ[name] for name in {names}) + '>')")
    found = sorted(re.findall("<(.*?)>", done.stdout))  # lines of two ranks may run into each other
    assert found == ["2 0 0 2", "2 1 1 2"], done.stderr  # world size, rank, local rank, local size
