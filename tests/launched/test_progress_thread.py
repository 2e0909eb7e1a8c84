"""A progress thread keeps no failing job alive, and what fails in it ends the job."""

import pytest

PROGRAM = """
import threading
import numpy as np
from mpi4py import MPI
import mpicoll
from mpicoll import progress
from mpicoll.progress.engine import Engine

comm = mpicoll.Communicator(MPI.COMM_WORLD)
x = np.ones(100_000, "float32")
right = Engine.progress

def broken(self, polls=1):
    if comm.rank == 1 and threading.current_thread().name == "mpicoll progress":
        raise ValueError("this went wrong")
    return right(self, polls)

with progress.thread():
    handle = comm.iallreduce(x)
    if comm.rank == 0:
        handle.wait()
        comm.allreduce(x)
        comm.allreduce(x)
    %s
"""


@pytest.mark.parametrize(
    "failing",
    ["raise ValueError('this went wrong')", "Engine.progress = broken; threading.Event().wait()"],
    ids=["the main thread", "the pump"],
)
def test_a_failure_ends_the_job(mpirun, failing):
    done = mpirun(2, PROGRAM % failing)
    assert done.returncode != 0
    assert done.stderr.count("[rank 1] ValueError: this went wrong") == 1, done.stderr
