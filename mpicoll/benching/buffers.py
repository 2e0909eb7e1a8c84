"""Buffers in a ring, each between guards, filled before the clock starts and checked after it has stopped.

Back-to-back calls of a small size each have buffers of their own. So nothing that is timed waits for a check, and yet
the result of every call is looked at: no later call has written over it. What a rank sends it has just written, as in
a program that computes what it sends; one call after the other on the same unchanged buffers would find them in the
cache of the rank that reads them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .cases import Case
from .pattern import Pattern, mistakes, write

GUARD = 64  # bytes on either side
SEAL = 0xA5  # what they hold
ROWS = 16  # at most: as many blocking calls as a communicator remembers
RING_BYTES = 512 << 10  # of a ring: what lies in a core's cache


class Mistake(NamedTuple):
    """Something a call has done wrong: how many elements (of a guard: bytes) are wrong, of which row, and in words."""

    wrong: int
    row: int
    text: str


class Ring:
    """`rows` arrays of `count` elements, the same on the outside as any others; around each are guards."""

    def __init__(self, rows: int, count: int, dtype: np.dtype[Any], place: Any) -> None:
        nbytes = count * dtype.itemsize
        stride = 2 * GUARD + -(-nbytes // GUARD) * GUARD
        memory = place(np.empty(rows * stride + GUARD, "uint8"))
        memory[...] = SEAL
        address = memory.ctypes.data if isinstance(memory, np.ndarray) else memory.data.ptr
        first = -address % GUARD
        self.memory = memory[first : first + rows * stride].reshape(rows, stride)
        self.end = GUARD + nbytes
        self.arrays = [row[GUARD : self.end].view(dtype) for row in self.memory]

    def damage(self, name: str) -> list[Mistake]:
        """What was written outside the arrays; the guards are whole again."""
        found = []
        for where, bytes_ in (("before", self.memory[:, :GUARD]), ("after", self.memory[:, self.end :])):
            broken = bytes_ != SEAL
            if broken.any():
                row, at = divmod(int(broken.argmax()), broken.shape[1])
                offset = at - GUARD if where == "before" else at
                text = f"guard {where} {name}: byte {offset:+d} from its {'start' if where == 'before' else 'end'}: "
                text += f"expected {SEAL:#x}, got {int(bytes_[row, at]):#x}"
                found.append(Mistake(int(broken.sum()), row, text))
                bytes_[...] = SEAL
        return found


class Buffers:
    """The buffers of a case, `rows` of them.

    Attributes:
        send, recv: the flat arrays of every row; [None, ...] where this rank has none.
    """

    def __init__(self, case: Case, in_place: bool, pattern: Pattern, rows: int, place: Any = np.asarray) -> None:
        self.case, self.in_place, self.pattern, self.rows = case, in_place, pattern, rows
        self.given, self.wanted = case.given(pattern), case.wanted(pattern)
        counts = [content[-1].stop if content else 0 for content in (self.given, self.wanted)]
        if in_place:
            ring = Ring(rows, max(counts), case.dtype, place)
            self._rings = {"the buffer": ring}
            views = [[array if count == max(counts) else array[case.own] for array in ring.arrays] for count in counts]
        else:
            rings = [Ring(rows, count, case.dtype, place) for count in counts]
            self._rings = dict(zip(("sendbuf", "recvbuf"), rings, strict=True))
            views = [ring.arrays for ring in rings]
        none = [None] * rows
        self.send = views[0] if self.given else none
        self.recv = views[1] if self.wanted else none

    def fill(self, shift: int) -> None:
        """Every row is ready for a call: recvbuf holds nothing that is right, sendbuf what this rank gives.

        Row r's numbers are moved on by shift + r.
        """
        for row in range(self.rows):
            if self.wanted:
                write(self.recv[row], self.wanted, self.pattern.poison, shift + row)
            if self.given:
                write(self.send[row], self.given, self.pattern.tiles, shift + row)

    def check(self, shift: int) -> list[Mistake]:
        """What the calls since `fill(shift)` have done wrong."""
        found = []
        if self.wanted:
            for row, array in enumerate(self.recv):
                with np.errstate(invalid="ignore"):  # not all bits of a poisoned longdouble are a number
                    count, first = mistakes(array, self.wanted, self.pattern.tiles, shift + row)
                if first:
                    text = f"index {first.at}: expected {first.expected}, got {first.got}"
                    found.append(Mistake(count, row, text))
        if self.given and not self.in_place:
            for row, array in enumerate(self.send):
                count, first = mistakes(array, self.given, self.pattern.tiles, shift + row)
                if first:
                    text = f"sendbuf was written to: index {first.at}: it held {first.expected}, now {first.got}"
                    found.append(Mistake(count, row, text))
        for name, ring in self._rings.items():
            found += ring.damage(name)
        return found


def rows_for(nbytes: int) -> int:
    """How many calls of this size come back to back."""
    return max(1, min(ROWS, RING_BYTES // max(nbytes, 1)))


def needed(case: Case, in_place: bool) -> int:
    """About how many bytes a rank's buffers take."""
    share = case.nbytes // case.size
    parts = {"reduce_scatter": share, "allgather": share, "gather": share, "scatter": share, "broadcast": 0}
    beside = 0 if in_place else parts.get(case.collective, case.nbytes)
    return rows_for(case.nbytes) * (case.nbytes + beside + 4 * GUARD)
