"""How ranks part: in order, or with a word that spares the others an endless wait.

A rank that closes a communicator, can use it no more, or ends its program, tells every other rank of the communicator
by an empty message.
Whoever waits for longer than a moment looks whether the ranks he waits for have said goodbye (`progress.wait.Pause`),
and raises instead of waiting for ever: that covers `sys.exit`, `raise SystemExit` and a plain early return alike.
"""

import atexit
import sys
import threading

from mpi4py import MPI

from .progress.engine import ENGINE, drive
from .progress.path import KEPT
from .progress.transport import Transport
from .progress.wait import Timeout
from .watchdog import Watchdog

_open: list[Transport] = []  # transports of communicators that are not closed; it changes under _guard
_guard = threading.Lock()
_watchdog = Watchdog(_open, _guard)
_over = False  # there were some, and all are closed


def register(transport):
    """The transport will be left in order at the end of the program."""
    global _over
    _over = False
    with _guard:
        _open.append(transport)
    if transport.size > 1:
        _watchdog.start()


def is_over():
    """Whether communicators were in use and all are closed: nobody waits for this rank any more."""
    return _over


def leave(transports, timeout=None):
    """All ranks have left these communicators, in the same way as this one; those that can be are freed."""
    global _over
    requests, coming = [], []
    transports = [transport for transport in transports if transport in _open]
    orderly = [transport for transport in transports if not transport.broken and transport.idle()]
    for transport in transports:
        with _guard:
            _open.remove(transport)
        requests += transport.say_goodbye()
    try:
        for transport in orderly:
            others = [rank for rank in range(transport.size) if rank != transport.rank]
            for rank in others:
                request = transport.mpi.Irecv([bytearray(0), MPI.BYTE], rank, transport.goodbye)
                coming.append((transport.rank_name(rank), request))
        drive([*requests, *(request for _, request in coming)], timeout)
    except Timeout as error:
        late = ", ".join(name for name, request in coming if not request.Test())
        raise Timeout(f"close: {late or 'ranks'} did not close the communicator, too: {error}") from None
    except MPI.Exception:  # a rank has died, which says no goodbye
        orderly = []
    for transport in orderly:
        _discard_messages(transport)
        for give_back in transport.at_close:
            give_back()
        transport.mpi.Free()
        transport.broken = "it is closed"
    _over = not _open


def abandon(transport, error):
    """The communicator is left without a word, since ranks have died; what was in flight has ended with this error."""
    for handle in list(ENGINE.handles):
        if handle.belongs_to(transport):
            ENGINE.give_up(handle, error)
    transport.fail("it was abandoned", error)
    with _guard:
        _open.remove(transport)


def _discard_messages(transport):
    """Nothing is left that nobody has received: MPICH would deliver it on the next communicator."""
    status = MPI.Status()
    while message := transport.mpi.Improbe(MPI.ANY_SOURCE, MPI.ANY_TAG, status):
        count = status.Get_count(MPI.BYTE)
        message.Recv([bytearray(count), MPI.BYTE])
        if status.Get_tag() in (transport.question, transport.answer):  # the watchdogs'; who asked waits no more
            continue
        _warn(f"a message of {count} bytes from {transport.rank_name(status.Get_source())} was never received")


def _warn(text):
    print(f"[rank {MPI.COMM_WORLD.rank}] mpicoll: {text}", file=sys.stderr, flush=True)


@atexit.register  # runs before mpi4py's own end of MPI, which was set up earlier
def _leave_all():
    if MPI.Is_finalized():
        return
    if ENGINE.handles:
        _warn(f"{len(ENGINE.handles)} handles were never waited for")
        KEPT.extend(ENGINE.handles)
    leave(_open, timeout=float("inf"))  # others may compute for as long as they like
    _watchdog.stop()
