"""What scripts/gpu_env.sh sets makes Open MPI send through UCX; its own UCX, as there is no other one here."""

import re
from pathlib import Path

SCRIPT = Path(__file__).parent.parent.parent / "scripts" / "gpu_env.sh"

PROGRAM = """
import numpy as np
from mpi4py import MPI
import mpicoll

with mpicoll.Communicator(MPI.COMM_WORLD) as comm:
    x = np.full(100_000, comm.rank + 1.0)
    y = np.empty_like(x)
    handle, plan = comm.iallreduce(x), comm.allreduce_init(x, y)
    plan.start()
    plan.wait()
    assert (y == 3).all() and (handle.wait() == 3).all() and (comm.allreduce(x) == 3).all()
    print("highest tag", MPI.COMM_WORLD.Get_attr(MPI.TAG_UB))
"""


def test_open_mpi_sends_through_ucx_which_has_few_tags(mpirun):
    told = dict(re.findall(r"^export (OMPI_MCA_\w+)=\"?([\w;]+)", SCRIPT.read_text(), re.M))
    assert len(told) == 3
    done = mpirun(2, PROGRAM, LD_LIBRARY_PATH="/nowhere", **told)
    assert done.returncode == 0, done.stderr
    if "--oversubscribe" in done.args:  # Open MPI
        assert done.stdout.count(f"highest tag {2**23 - 1}\n") == 2
