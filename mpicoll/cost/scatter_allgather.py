"""The cost of `algorithms.scatter_allgather`."""

from __future__ import annotations

from collections.abc import Sequence

from ..algorithms.cut import even
from ..algorithms.tree import subtree
from .model import Cost, one_by_one
from .tree import child_count


def _pieces(chunks: Sequence[int], itemsize: int) -> list[int]:
    """The bytes of the pieces, one for each vrank: the algorithm cuts the buffer itself."""
    return [count * itemsize for count in even(sum(chunks) // itemsize, len(chunks))]


def broadcast(rank: int, chunks: Sequence[int], itemsize: int, root: int) -> Cost:
    """The scatter: the own piece and those below come, those below go. The ring: all pieces but one come, except to the
    root, and go, except to the root."""
    size, pieces = len(chunks), _pieces(chunks, itemsize)
    vrank, steps = (rank - root) % size, size - 1
    below, sends = sum(pieces[v] for v in subtree(vrank, size)), child_count(vrank, size)
    passed = below - pieces[vrank]
    cost = Cost(sends, sends, passed, 0, sends, passed) + one_by_one(below, receives=int(vrank > 0))
    out = [pieces[vrank - step] if vrank < size - 1 else 0 for step in range(steps)]
    into = [pieces[vrank - step - 1] if vrank > 0 else 0 for step in range(steps)]
    messages = steps if vrank < size - 1 else 0
    return cost + Cost(steps, messages, sum(out), 0, steps, sum(map(max, out, into)))


def broadcast_path(chunks: Sequence[int], itemsize: int) -> Cost:
    """The root has sent all other pieces when its own, one of the longest, begins its way round."""
    size, pieces = len(chunks), _pieces(chunks, itemsize)
    messages = (size - 1).bit_length() + size - 1
    return Cost(port_messages=messages, port_bytes=sum(pieces[1:]) + (size - 1) * pieces[0])
