"""Messages round a ring of ranks, as an algorithm sends them: what alpha, beta and gamma are measured by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..arrays import NumPyArrays
from ..progress.call import Job
from .timing import Timed

ROUNDS = 8  # in a call, so that little of its time is that of the call; each has a part of the buffers of its own


def maker(comm: Any, members: Sequence[int], nbytes: int, reduce: bool = False) -> Timed:
    """A function that runs ROUNDS rounds: each of the members sends `nbytes` bytes to the next, and receives as many.

    Other ranks send nothing. With `reduce` every rank reduces what has arrived into what is here, after each round.
    """
    sendbuf, recvbuf = (np.ones(ROUNDS * nbytes // 4, np.float32) for _ in range(2))
    neighbours = None
    if comm.rank in members and len(members) > 1:
        place = members.index(comm.rank)
        neighbours = members[place - 1], members[(place + 1) % len(members)]
    return lambda number: comm._run(_job, sendbuf, recvbuf, neighbours, reduce)


def _job(comm: Any, sendbuf: Any, recvbuf: Any, neighbours: tuple[int, int] | None, reduce: bool) -> Job:
    """As those in jobs.py, which the Communicator also replays as it does those."""

    def program(c: Any, op: Any) -> Any:
        count = len(sendbuf) // ROUNDS
        for start in range(0, len(sendbuf), count):
            mine, got = (array[start : start + count] for array in (sendbuf, recvbuf))
            if neighbours:
                left, right = neighbours
                yield c.Isend(mine, right), c.Irecv(got, left)
            if reduce:
                yield op(mine, mine, got)

    return Job("exchange", NumPyArrays, sendbuf, "sum", program, recvbuf)
