"""Several calls started together, as NCCL's group calls."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from .engine import ENGINE, Handle


class _Open(threading.local):
    handles: list[Handle] | None = None  # those started in this thread's group; None outside


_open = _Open()


@contextlib.contextmanager
def group() -> Iterator[None]:
    """Blocking calls inside only start; when the block ends all of them are complete, on whatever communicator.

    A call's return value may be used after the block; so may its buffers. Groups may be nested: the outermost one
    completes. If an exception leaves the block, what was started stays in flight.

        with mpicoll.group():
            for comm, x, y in zip(comms, xs, ys):
                comm.allreduce(x, y)
    """
    if _open.handles is not None:
        yield
        return
    handles = _open.handles = []
    try:
        yield
    finally:
        _open.handles = None
    complete(*handles)


def complete(*handles: Handle) -> Any:
    """The result of the last one; if a wait is broken off, what still flies is given up, since nobody else waits."""
    try:
        results = [handle.wait() for handle in handles]
    except BaseException as error:
        for handle in handles:
            ENGINE.give_up(handle, error)
        raise
    return results[-1] if results else None


def started() -> list[Handle] | None:
    """The list of the handles that this thread's group has started; None outside a group."""
    return _open.handles
