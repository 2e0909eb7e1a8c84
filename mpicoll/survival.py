"""Work that goes on without the ranks that die: with Open MPI's fault tolerance (Bland et al., IJHPCA 2013).

    rank 0   work ... waits for 2 ──── error ─ revoke ┐ agree: no   shrink   work again, as rank 0 of 3
    rank 1   work ... waits for 0 ──────────── error ─┤ agree: no   shrink   work again, as rank 1 of 3
    rank 2   work ... dies                            │
    rank 3   work ... computes ... waits ────── error ┘ agree: no   shrink   work again, as rank 2 of 3

Who waits for a dead rank gets an error from MPI, who waits for a living one does not: revoking a communicator ends all
waits on it, on all ranks. That no rank believes that all is done while another one starts again takes an agreement.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeVar

from mpi4py import MPI

from . import launch, leaving
from .communicator import Communicator
from .progress import PeerDied

Result = TypeVar("Result")
ENABLED = "OMPI_MCA_mpi_ft_enable"  # what mpirun --with-ft sets


def refuse() -> None:
    """Nothing if this MPI was started with fault tolerance.

    Raises:
        ValueError: it was not.
    """
    vendor, numbers = MPI.get_vendor()
    if vendor != "Open MPI" or numbers < (5, 0):
        version = ".".join(map(str, numbers))
        raise ValueError(f"ranks that die end the job under {vendor} {version}; Open MPI from 5.0 on can go on")
    if os.environ.get(ENABLED) not in ("1", "true"):
        line = launch.equivalent(MPI.COMM_WORLD.size, sys.orig_argv).replace(" -np ", " --with-ft ulfm -np ", 1)
        raise ValueError(f"Open MPI was started without fault tolerance, so ranks that die end the job: {line}")


def survive(
    comms: Sequence[Communicator], work: Callable[[list[Communicator]], Result]
) -> tuple[Result | None, list[Communicator]]:
    """(what `work(comms)` returned, the communicators it had), when it has ended well on all ranks that are alive.

    Each time that ranks have died, work is called again on all others, with as many communicators of these; also
    where it had ended already.

    Args:
        comms: Communicators of the same ranks. When ranks have died they cannot be used any more.
        work: raises what its calls on the communicators raise.
    """
    mpis, comms = [comm._transport.mpi for comm in comms], list(comms)
    while True:
        result: Result | None = None
        error: PeerDied | None = None
        try:
            for mpi in mpis[len(comms) :]:
                comms.append(Communicator(mpi, duplicate=False))  # type: ignore[no-untyped-call]
            result = work(comms)
        except PeerDied as died:
            error = died
            for mpi in mpis:
                mpi.Revoke()
        if _agree(mpis[0], error is None):
            return result, comms
        error = error or PeerDied("a rank of its communicator has died")
        for comm in comms:
            leaving.abandon(comm._transport, error)  # type: ignore[no-untyped-call]
        mpis, comms = _shrunk(mpis), []


def end(status: int) -> NoReturn:
    """The program has ended, without MPI's own end: Open MPI 5.0.11 may wait there for ever if ranks have died."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _agree(mpi: MPI.Comm, fine: bool) -> bool:
    """Whether all ranks that are alive say so: the same answer on all of them."""
    mpi.Ack_failed()
    try:
        return bool(mpi.Agree(int(fine)))
    except MPI.Exception:  # one has died that not all knew of; all get this
        return False


def _shrunk(mpis: Sequence[Any]) -> list[Any]:
    """Communicators of the ranks that are alive, each of the same ones."""
    while True:
        mpis = [mpi.Shrink() for mpi in mpis]
        if len({mpi.size for mpi in mpis}) == 1:  # otherwise one died between
            return mpis
