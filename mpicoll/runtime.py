"""What surrounds a parallel program: facts known before MPI starts, and how it ends when something goes wrong."""

import builtins
import contextlib
import os
import re
import sys
import threading
import time
import traceback
from typing import NamedTuple

_RANK = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID")
_LOCAL_RANK = ("MPI_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID")
_LOCAL_SIZE = ("MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE")
_THREADS = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")

# Who starts processes, how many of them as it tells each, and what shows that it did. The first that is there counts:
# an mpirun runs inside a Slurm step, not the reverse. A batch script has SLURM_PROCID and often SLURM_NTASKS, but no
# SLURM_STEP_NUM_TASKS; that of an interactive step is 1.
_LAUNCHERS = (
    ("Open MPI's mpirun", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
    ("MPICH's mpirun", "PMI_SIZE", "MPI_LOCALRANKID"),
    ("srun", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID"),
    ("a launcher that speaks PMI", "PMI_SIZE", "PMI_RANK"),
    ("torchrun", "WORLD_SIZE", "RANK"),
)


class Launch(NamedTuple):
    """Who started this process, and how many it says that it started; ("", 1) if nobody says so."""

    by: str
    size: int


def launch(environment=os.environ):
    """The Launch that the environment tells of; known before MPI starts."""
    for by, size, sign in _LAUNCHERS:
        if sign in environment and environment.get(size, "").isdecimal():
            return Launch(by, int(environment[size]))
    return Launch("", 1)


def _from_launcher(names, default):
    return next((int(os.environ[name]) for name in names if name in os.environ), default)


def launched_rank():
    """This process's rank as the launcher told it, 0 without one; known before MPI starts."""
    return _from_launcher(("RANK",) if launch().by == "torchrun" else _RANK, 0)


def launched_local_rank():
    """This process's rank among those of its node as the launcher told it, 0 without one; known before MPI starts."""
    return _from_launcher(_LOCAL_RANK, 0)


def launched_local_size():
    """How many ranks are on this node as the launcher told it, 1 without one; known before MPI starts."""
    if launch().by == "srun" and "SLURM_STEP_TASKS_PER_NODE" in os.environ:  # such as 2(x3),1: one number for each node
        terms = re.findall(r"(\d+)(?:\(x(\d+)\))?", os.environ["SLURM_STEP_TASKS_PER_NODE"])
        sizes = [int(size) for size, times in terms for _ in range(int(times or 1))]
        return sizes[int(os.environ.get("SLURM_NODEID", 0))]
    return _from_launcher(_LOCAL_SIZE, 1)


def limit_threads():
    """NumPy's matrix products will use the cores that are this rank's share of the node; call it before NumPy loads.

    Otherwise every rank starts as many threads as there are cores. What the user has set stays. Where NumPy has loaded
    already and takes more than the share, rank 0 says so.
    """
    cores = len(os.sched_getaffinity(0))
    share = share_of(cores, launched_local_size(), cores_of_all())
    unset = [name for name in _THREADS if name not in os.environ]
    os.environ.update(dict.fromkeys(unset, str(share)))
    if "numpy" in sys.modules and len(unset) == len(_THREADS) and share < cores and launched_rank() == 0:
        what = f"NumPy was loaded before limit_threads: every rank may use {cores} threads where {share} are its share"
        print(f"mpicoll: {what}; set OMP_NUM_THREADS={share}, or import NumPy later", file=sys.stderr, flush=True)


def share_of(cores, ranks, of_all):
    """How many cores are a rank's own.

    Args:
        cores: that it may use.
        ranks: on its node.
        of_all: the cores that all of those ranks may use; more than `cores` if the launcher has bound them to parts.
    """
    cores = min(cores, of_all)
    sharing = -(-ranks * cores // of_all)  # ranks with the same cores, if all are spread evenly
    return max(1, cores // sharing)


def cores_of_all():
    """The cores that the ranks of this node may use together: what the job has there, or what the launcher may use."""
    cores = os.sched_getaffinity(0)
    with contextlib.suppress(OSError):  # the launcher has just ended
        cores = max(cores, os.sched_getaffinity(os.getppid()), key=len)
    return min(len(cores), int(os.environ.get("SLURM_CPUS_ON_NODE", len(cores))))


def install_abort_hook(is_over):
    """An uncaught exception on a rank, also in a thread, prints its traceback, tagged with the rank, and ends the job.

    Without it the other ranks would wait for this one for ever. SystemExit counts as such if its status is not 0; as
    no excepthook is called for it, `sys.exit` and the built-in SystemExit are replaced, by a subclass; only what C code
    raises itself, as `_thread.exit` does, is then not caught by `except SystemExit`. Programs of one rank are left as
    they are.

    Args:
        is_over: tells whether nobody waits for this rank any more; then SystemExit just ends it.
    """
    from mpi4py import MPI

    if MPI.COMM_WORLD.size > 1:
        sys.excepthook = _abort
        threading.excepthook = lambda args: _abort(args.exc_type, args.exc_value, args.exc_traceback)
        _Exit.is_over = staticmethod(is_over)
        original, builtins.SystemExit, sys.exit = sys.exit, _Exit, _exit
        for module in list(sys.modules.values()):  # where somebody wrote `from sys import exit`
            names = getattr(module, "__dict__", {})
            for name in [name for name, value in names.items() if value is original]:
                names[name] = _exit


def _abort(kind, error, trace):
    status = error.code if isinstance(error, _builtin_exit) else 1
    if status not in (0, None):  # otherwise a thread that ends in order
        _end_job("".join(traceback.format_exception(kind, error, trace)), status)


def _end_job(text, status):
    from mpi4py import MPI

    rank = MPI.COMM_WORLD.rank
    sys.stdout.flush()
    sys.stderr.write("".join(f"[rank {rank}] {line}\n" for line in text.splitlines()))
    sys.stderr.flush()
    time.sleep(0.1)  # the launcher ends all ranks at once, whether or not it has passed on what they have printed
    MPI.COMM_WORLD.Abort(status if isinstance(status, int) else 1)


_builtin_exit = SystemExit


class _Exit(SystemExit):
    """A SystemExit that knows where it was raised, and notices when it ends the program.

    The interpreter, when nobody has caught it, reads its `code`, and it is the only one to do so without a calling
    frame.
    """

    def __init__(self, *args):
        super().__init__(*args)
        self.status = args[0] if len(args) == 1 else args or None
        frame = sys._getframe(1)
        self.stack = traceback.format_stack(frame.f_back if frame.f_code is _exit.__code__ else frame)

    @property
    def code(self):
        try:
            sys._getframe(1)
        except ValueError:
            if self.status not in (0, None) and not self.is_over():
                text = ["Traceback (most recent call last):\n", *self.stack, f"SystemExit: {self.status}"]
                _end_job("".join(text), self.status)
        return self.status

    @code.setter
    def code(self, status):
        self.status = status


_Exit.__name__ = _Exit.__qualname__ = "SystemExit"
_Exit.__module__ = "builtins"


def _exit(status=None):
    raise SystemExit(status)
