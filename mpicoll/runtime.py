"""What surrounds a parallel program: facts known before MPI starts, and how it ends when something goes wrong."""

import os
import sys
import threading
import time
import traceback

_RANK = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID")
_LOCAL_SIZE = ("MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE")
_THREADS = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")


def _from_launcher(names, default):
    return next((int(os.environ[name]) for name in names if name in os.environ), default)


def launched_rank():
    """This process's rank as the launcher told it, 0 without one; known before MPI starts."""
    return _from_launcher(_RANK, 0)


def limit_threads():
    """NumPy's matrix products will use the cores that are this rank's share of the node; call it before NumPy loads.

    Otherwise every rank starts as many threads as there are cores. What the user has set stays.
    """
    share = max(1, len(os.sched_getaffinity(0)) // _from_launcher(_LOCAL_SIZE, 1))
    for name in _THREADS:
        os.environ.setdefault(name, str(share))


def install_abort_hook():
    """An uncaught exception on a rank, also in a thread, prints its traceback, tagged with the rank, and ends the job.

    Without it the other ranks would wait for this one for ever. `sys.exit` with a status other than 0 counts as such.
    """
    if sys.excepthook is _abort:
        return
    sys.excepthook = _abort
    threading.excepthook = lambda args: _abort(args.exc_type, args.exc_value, args.exc_traceback)
    sys.exit = _exit


def _abort(kind, error, trace):
    status = error.code if isinstance(error, SystemExit) else 1
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


class _Exit(SystemExit):
    """What `sys.exit` raises: it knows where it was raised, and notices when it ends the program.

    No excepthook is called for SystemExit. But the interpreter, when nobody has caught it, reads its `code`, and it is
    the only one to do so without a calling frame.
    """

    def __init__(self, status=None):
        super().__init__(status)
        self.status = status
        self.stack = traceback.format_stack(sys._getframe(2))

    @property
    def code(self):
        try:
            sys._getframe(1)
        except ValueError:
            if self.status not in (0, None):
                text = ["Traceback (most recent call last):\n", *self.stack, f"SystemExit: {self.status}"]
                _end_job("".join(text), self.status)
        return self.status


def _exit(status=None):
    raise _Exit(status)
