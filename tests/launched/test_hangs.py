"""A job that hangs ends, and says who waits for whom and what the last one does."""

import pytest

PROGRAM = """
import os, signal, threading
import numpy as np
from mpi4py import MPI
import mpicoll

comm = mpicoll.Communicator(MPI.COMM_WORLD)
x = np.ones(1000, "float32")
comm.allreduce(x)

def forward():
    threading.Event().wait()

if comm.rank == 0:
    {trouble}
comm.allreduce(x, algorithm="ring")
"""
IN_CODE = "rank 0 is in its own code: "
TROUBLES = {
    "forward()": (
        IN_CODE,
        "in forward",
        "threading.Event().wait()",
        "rank 0 has started 1 call on",
        "ranks 1, 2 have started 2 calls",
    ),
    "MPI.COMM_WORLD.Barrier()": (IN_CODE, "MPI.COMM_WORLD.Barrier()"),
    "comm.recv(np.empty(3), 1)": ("in a circle: ranks 0, 1 wait for each other",),
    "os.kill(os.getpid(), signal.SIGSTOP)": ("rank 0 does not answer: it is stopped, or dead",),
}


@pytest.mark.parametrize("trouble", TROUBLES)
def test_a_hang_ends_and_is_explained(mpirun, trouble):
    done = mpirun(3, PROGRAM.format(trouble=trouble), MPICOLL_TIMEOUT="1")
    assert done.returncode != 0
    assert "Timeout: rank" in done.stderr
    assert "waits for rank 0 in allreduce (round 0" in done.stderr or "circle" in done.stderr, done.stderr
    assert "call 1: allreduce by " in done.stderr
    for words in TROUBLES[trouble]:
        assert words in done.stderr, done.stderr


SPLIT = """
import threading
import numpy as np
from mpi4py import MPI
import mpicoll

comm = mpicoll.Communicator(MPI.COMM_WORLD)
part = mpicoll.Communicator(MPI.COMM_WORLD.Split(comm.rank == 2))

def forward():
    threading.Event().wait()

if comm.rank == 0:
    part.barrier()  # waits for rank 1, whom it can ask there, and that one for rank 2, whom it cannot
elif comm.rank == 1:
    try:
        comm.recv(np.empty(3), 2)
    except mpicoll.Timeout:
        forward()
else:
    forward()
"""


def test_the_chain_goes_on_in_another_communicator(mpirun):
    done = mpirun(3, SPLIT, MPICOLL_TIMEOUT="1")
    assert done.returncode != 0
    assert "rank 0 waits for rank 1 in barrier" in done.stderr, done.stderr
    assert "does not answer" not in done.stderr
    assert "in forward" in done.stderr


def test_who_does_not_close_a_communicator_is_named(mpirun):
    program = PROGRAM.replace('comm.allreduce(x, algorithm="ring")', "comm.close()")
    done = mpirun(2, program.format(trouble="forward()"), MPICOLL_TIMEOUT="1")
    assert done.returncode != 0
    assert "Timeout: close: rank 0 did not close the communicator, too" in done.stderr, done.stderr


ENDED = """
import threading
import numpy as np
from mpi4py import MPI
import mpicoll

comm = mpicoll.Communicator(MPI.COMM_WORLD)
comm.allreduce(np.ones(3))
MPI.COMM_WORLD.Barrier()
MPI.Finalize()
assert not [thread for thread in threading.enumerate() if "mpicoll" in thread.name]
"""


def test_a_program_may_end_mpi_itself(mpirun):
    done = mpirun(2, ENDED)
    assert done.returncode == 0, done.stderr


SIGNALLED = """
import os, signal, sys, threading
import numpy as np
from mpi4py import MPI
import mpicoll

class Told:  # what is printed, and that it was
    def __init__(self):
        self.event = threading.Event()

    def write(self, text):
        sys.__stderr__.write(text)
        self.event.set()

    def flush(self):
        sys.__stderr__.flush()

comm = mpicoll.Communicator(MPI.COMM_WORLD)
comm.allreduce(np.ones(3))
if comm.rank == 1:
    sys.stderr = Told()
    os.kill(os.getpid(), signal.SIGUSR2)
    sys.stderr.event.wait()
comm.barrier()
"""


def test_a_signal_tells_what_a_rank_does_and_it_goes_on(mpirun):
    done = mpirun(2, SIGNALLED)
    assert done.returncode == 0, done.stderr
    assert "[rank 1] rank 1 is in its own code: " in done.stderr
    assert "[rank 1]     call 1: allreduce by " in done.stderr
