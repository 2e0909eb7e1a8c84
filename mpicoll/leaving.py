"""How ranks part: in order, or with a word that spares the others an endless wait.

A rank that closes a communicator, or ends its program, tells every other rank of the communicator by an empty message.
Whoever waits for longer than a moment looks whether the ranks he waits for have said goodbye (`progress.wait.Pause`),
and raises instead of waiting for ever: that covers `sys.exit`, `raise SystemExit` and a plain early return alike.
"""

import atexit
import sys

from mpi4py import MPI

from .progress.call import Transport
from .progress.engine import ENGINE, drive
from .progress.path import KEPT

_open: list[Transport] = []  # transports of communicators that are not closed
_over = False  # there were some, and all are closed


def register(transport):
    """The transport will be left in order at the end of the program."""
    global _over
    _over = False
    _open.append(transport)


def is_over():
    """Whether communicators were in use and all are closed: nobody waits for this rank any more."""
    return _over


def leave(transports, timeout=None):
    """All ranks have left these communicators, in the same way as this one; those that can be are freed."""
    global _over
    empty = bytearray(0)
    requests = []
    transports = [transport for transport in transports if transport in _open]
    orderly = [transport for transport in transports if not transport.broken and transport.idle()]
    for transport in transports:
        _open.remove(transport)
        others = [rank for rank in range(transport.size) if rank != transport.rank]
        mpi, tag = transport.mpi, transport.goodbye
        requests += [mpi.Isend([empty, MPI.BYTE], rank, tag) for rank in others]
        if transport in orderly:
            requests += [mpi.Irecv([empty, MPI.BYTE], rank, tag) for rank in others]
    drive(requests, timeout)
    for transport in orderly:
        for give_back in transport.at_close:
            give_back()
        transport.mpi.Free()
        transport.broken = "it is closed"
    _over = not _open


@atexit.register  # runs before mpi4py's own end of MPI, which was set up earlier
def _leave_all():
    if ENGINE.handles:
        rank = MPI.COMM_WORLD.rank
        print(f"[rank {rank}] mpicoll: {len(ENGINE.handles)} handles were never waited for", file=sys.stderr)
        KEPT.extend(ENGINE.handles)
    leave(_open, timeout=float("inf"))  # others may compute for as long as they like
