"""What the same memory traffic costs without messages: plain local copies and additions, on all ranks at once.

A message within a node is a copy from the other rank's memory to one's own, and a reduction is an addition; here both
are done on arrays of one's own, as many bytes as the closed forms say that a rank receives and reduces. They go in
segments: what was copied is still in the cache when it is added. Nothing that moves these bytes is faster, so the share
that a collective reaches of it is what messages, waiting and Python leave.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import cost
from ..algorithms.cut import even
from ..algorithms.ring import SEGMENT_BYTES
from .buffers import Buffers
from .cases import Case
from .contenders import Ours, Peer
from .pattern import UFUNCS

ALIKE = ("allreduce", "reduce_scatter", "allgather", "alltoall")  # every rank receives as much as it sends


class Limit(Peer):
    """Copies and additions as the contender `limit`: as many as `ours` would do."""

    name = "limit"

    def __init__(self, ours: Ours) -> None:
        self.ours = ours

    def refusal(self, case: Case, in_place: bool) -> str | None:
        if case.collective not in ALIKE:
            return f"in {case.collective} ranks do not all move as many bytes; there is a limit for {', '.join(ALIKE)}"
        return None

    def unchecked(self, case: Case) -> str:
        return "what it computes is no result"

    def calls(self, case: Case, buffers: Buffers) -> list[Callable[[], object]]:
        item = case.dtype.itemsize
        does = cost.of(case.collective, self.ours.label(case), case.rank, even(case.count, case.size), item)
        added, copied = does.reduced // item, (does.sent - does.reduced) // item
        theirs = np.ones(max(added, copied), case.dtype)  # what would be another rank's
        pairs = zip(buffers.send, buffers.recv, strict=True)
        return [functools.partial(_do, *_steps(case, theirs, added, copied, *pair)) for pair in pairs]


def _steps(case: Case, theirs: Any, added: int, copied: int, mine: Any, out: Any) -> tuple[Any, list[Any], list[Any]]:
    """The function that reduces, its arguments segment by segment with what is copied before, and the other copies."""
    length = min(max(1, SEGMENT_BYTES // case.dtype.itemsize), len(mine), len(out))
    slot = np.empty(length, case.dtype)

    def view(array: Any, start: int, count: int) -> Any:  # what is done more than once over is done at the front again
        start %= len(array) - count + 1
        return array[start : start + count]

    reductions, copies = [], []
    for start in range(0, added, length):
        count = min(length, added - start)
        reductions.append((slot[:count], view(theirs, start, count), view(mine, start, count), view(out, start, count)))
    beside = max(0, len(out) - copied)  # in an all-reduce, what is copied lies beside what was reduced
    for start in range(0, copied, length):
        count = min(length, copied - start)
        copies.append((view(out, beside + start, count), view(theirs, start, count)))
    return UFUNCS.get(case.op or ""), reductions, copies


def _do(function: Any, reductions: list[Any], copies: list[Any]) -> None:
    for slot, theirs, mine, out in reductions:
        slot[...] = theirs
        function(slot, mine, out)
    for out, theirs in copies:
        out[...] = theirs
