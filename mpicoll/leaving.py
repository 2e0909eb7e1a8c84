"""How ranks part: in order, or with a word that spares the others an endless wait.

A rank that closes a communicator, or ends its program, tells every other rank of the communicator by an empty message.
Whoever waits for longer than a moment looks whether the ranks he waits for have said goodbye (`progress.wait.Pause`),
and raises instead of waiting for ever: that covers `sys.exit`, `raise SystemExit` and a plain early return alike.
"""

import atexit
import time

from mpi4py import MPI

from . import runtime

_open = []  # transports of communicators that are not closed


def register(transport):
    """The transport will be left in order at the end of the program."""
    if not _open:
        atexit.register(_leave_all)  # runs before mpi4py's own end of MPI, which was set up earlier
        runtime.install_abort_hook()
    _open.append(transport)


def leave(transports):
    """All ranks have left these communicators, in the same way as this one; those that can be are freed."""
    empty = bytearray(0)
    requests = []
    orderly = [transport for transport in transports if not transport.broken and transport.idle()]
    for transport in transports:
        others = [rank for rank in range(transport.size) if rank != transport.rank]
        mpi, tag = transport.mpi, transport.goodbye
        requests += [mpi.Isend([empty, MPI.BYTE], rank, tag) for rank in others]
        if transport in orderly:
            requests += [mpi.Irecv([empty, MPI.BYTE], rank, tag) for rank in others]
    while not MPI.Request.Testall(requests):
        time.sleep(0.2e-3)
    for transport in orderly:
        for give_back in transport.at_close:
            give_back()
        transport.mpi.Free()
        transport.broken = "it was closed"
    for transport in transports:
        _open.remove(transport)


def _leave_all():
    leave(list(_open))
