"""What surrounds a parallel program: facts known before MPI starts, and how it ends when something goes wrong."""

import os
import sys
import threading
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
    if isinstance(error, SystemExit) and not _status(error):
        return  # a thread that ends so ends in order
    from mpi4py import MPI

    rank = MPI.COMM_WORLD.rank
    text = "".join(traceback.format_exception(kind, error, trace))
    sys.stdout.flush()
    sys.stderr.write("".join(f"[rank {rank}] {line}\n" for line in text.splitlines()))
    sys.stderr.flush()
    MPI.COMM_WORLD.Abort(_status(error) or 1)


def _status(error):
    code = getattr(error, "code", 1)
    return code if isinstance(code, int) else int(code is not None)


_last_exit = None


def _exit(status=None):
    """`sys.exit`, but remembered: at the end of the program we can tell whether this was what ended it."""
    global _last_exit
    _last_exit = SystemExit(status)
    raise _last_exit


def abort_after_exit():
    """The job is ended if this program was: by `sys.exit` with a status other than 0, that nobody caught."""
    trace = _last_exit and _last_exit.__traceback__
    if trace and _status(_last_exit) and trace.tb_frame.f_back is None:  # it went through the outermost frame
        _abort(SystemExit, _last_exit, trace)
