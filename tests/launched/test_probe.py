"""The probe's real children, under the launcher of this environment; a CuPy of paper stands in for the GPU."""

import os
import sys

import pytest

from mpicoll.probe import guard

IN_A_JOB = """
import os, sys
from mpi4py import MPI
from mpicoll.probe.__main__ import main

os.environ.update(  # as if a batch system had started it, on nodes that cannot be reached
    SLURM_JOB_ID="7", SLURM_JOBID="7", SLURM_JOB_NODELIST="nowhere[0-1]", SLURM_NODELIST="nowhere[0-1]",
    SLURM_NNODES="2", SLURM_JOB_NUM_NODES="2", SLURM_TASKS_PER_NODE="1(x2)", SLURM_JOB_CPUS_PER_NODE="1(x2)",
)
sys.exit(main(["--memory", "host"]))
"""


def test_it_works_inside_a_job_and_once_per_node(mpirun, tmp_path):
    done = mpirun(2, IN_A_JOB, TMPDIR=str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("verdict   host memory works: 56 messages") == 1
    assert len(list(tmp_path.glob("mpicoll-*/probe-*.json"))) == 1


CUPY = """
import ctypes, mmap, os
import numpy
from types import SimpleNamespace

libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
FORBIDDEN = libc.mmap(None, ctypes.c_size_t(8 << 20), 0, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, ctypes.c_size_t(0))

class ndarray(numpy.ndarray):
    @property
    def data(self):
        return SimpleNamespace(ptr=FORBIDDEN if "FORBIDDEN" in os.environ else self.ctypes.data)

def arange(*args, **keywords):
    return numpy.arange(*args, **keywords).view(ndarray)

def full(*args):
    return numpy.full(*args).view(ndarray)

class Device(SimpleNamespace):
    def use(self):
        pass

class runtime:
    CUDARuntimeError = RuntimeError
    getDeviceCount = lambda: 1
    deviceSynchronize = lambda: None
    free = lambda pointer: None

cuda = SimpleNamespace(Device=lambda number: Device(id=number), runtime=runtime)
"""


@pytest.fixture
def paper_gpu(monkeypatch, tmp_path):
    (tmp_path / "cupy.py").write_text(CUPY)
    monkeypatch.syspath_prepend(tmp_path)


def test_memory_that_mpi_can_send_passes(paper_gpu):
    found = guard.try_memory(guard.find_launcher(), "device")
    assert found.passed, found


def test_memory_that_mpi_cannot_touch_fails_with_the_reason(paper_gpu, monkeypatch):
    monkeypatch.setenv("FORBIDDEN", "as device memory is to an MPI that knows nothing of it")
    found = guard.try_memory(guard.find_launcher(), "device")
    assert found.passed is False, found
    assert found.why == "while messages were sent, the child crashed: SIGSEGV"


WRONG = """
import sys
from mpicoll.probe import child

honest = child.contents

def contents(xp, source, nbytes):
    data = honest(xp, source, nbytes)
    if source == 1 and nbytes == 65537:
        data[-1] ^= child.runtime.launched_rank()  # rank 1 sends one wrong bit
    return data

child.contents = contents
sys.exit(child.main("host", "60"))
"""


def test_wrong_content_is_noticed(mpirun):
    done = mpirun(2, WRONG)
    assert done.returncode != 0
    what = "65537 bytes from rank 1, 0 bytes into an allocation, are not what was sent"
    assert f'"wrong": "rank 0 got wrong content: {what}"' in done.stdout


def test_a_launcher_of_another_mpi_is_noticed():
    alone = [sys.executable, "-m", "mpicoll.probe.child", "host", "60"]  # as such a launcher would have it
    found = guard.attempt(alone, guard.scrub(os.environ), 60)
    assert found.passed is None
    assert "the world of a process had size 1, and 1 on its node, where 2 were started" in found.why
