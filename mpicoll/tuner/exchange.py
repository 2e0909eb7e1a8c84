"""Messages round a ring of ranks, as an algorithm sends them: what alpha, beta and gamma are measured by."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from ..arrays import NumPyArrays
from ..progress.call import Job
from .timing import Timed, rows_for

ROUNDS = 8  # in a call, so that little of its time is that of the call; each has a part of the buffers of its own


def maker(comm: Any, members: Sequence[int], nbytes: int, rounds: int = ROUNDS, into: str | None = None) -> Timed:
    """Calls of so many rounds: each of the members sends `nbytes` bytes to the next, and receives as many.

    Other ranks send nothing.

    Args:
        into: after each round every rank reduces what has arrived and what it has sent, into the one or the other:
            "sent" or "arrived"; None: it does not.
    """
    rows = rows_for(rounds * nbytes)
    sendbufs, recvbufs = (np.ones((rows, rounds * nbytes // 4), np.float32) for _ in range(2))
    neighbours = None
    if comm.rank in members and len(members) > 1:
        place = members.index(comm.rank)
        neighbours = members[place - 1], members[(place + 1) % len(members)]
    pairs = zip(sendbufs, recvbufs, strict=True)
    calls = [partial(comm._run, _job, send, recv, neighbours, rounds, into) for send, recv in pairs]
    return Timed(calls, partial(sendbufs.fill, 1))


def _job(
    comm: Any, sendbuf: Any, recvbuf: Any, neighbours: tuple[int, int] | None, rounds: int, into: str | None
) -> Job:
    """As those in jobs.py, which the Communicator also replays as it does those."""

    def program(c: Any, op: Any) -> Any:
        count = len(sendbuf) // rounds
        for start in range(0, len(sendbuf), count):
            mine, got = (array[start : start + count] for array in (sendbuf, recvbuf))
            if neighbours:
                left, right = neighbours
                yield c.Isend(mine, right), c.Irecv(got, left)
            if into:
                yield op(mine if into == "sent" else got, mine, got)

    return Job("exchange", NumPyArrays, sendbuf, "sum", program, recvbuf)
