"""The language in which algorithms are written, and the protocol between an algorithm and its driver.

An algorithm is MPI code with `yield` where it would wait:

    def exchange(comm, sendbuf, result, op):
        peer = 1 - comm.rank
        got = comm.scratch(sendbuf)
        yield comm.Isend(sendbuf, peer), comm.Irecv(got, peer)     # a round: both are complete on the next line
        yield op(result, sendbuf, got)                             # result = sendbuf op got

What a yield delivers is a *round*: one item or a tuple of items, all complete before the next line runs. An item is
None, what Isend, Irecv, op or copy returned, or another generator running on `comm.lane(k)`, which advances on its own;
the round ends when it has ended. Everything made since the last yield is in the next one: write messages first, then
local work, so that the work is done while the messages fly.

An algorithm touches its arguments, `comm` and `op`, nothing else: no tags, dtypes, device code, allocation. Its rounds
depend on rank, size, counts and options, never on data. Therefore one text can be run (blocking, nonblocking, as a
persistent plan), proven and simulated: the drivers in `progress` and `world` differ only in the `Call` they supply.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, NewType, Protocol, TypeAlias, TypeVar

LANES = 8  # lanes of one comm
NUMBERS = 1 + LANES + LANES * LANES  # paths of one call: the root, its lanes, their lanes


class Array(Protocol):
    """All that an algorithm may know of an array: flat, cut into views by slices."""

    @property
    def nbytes(self) -> int: ...
    def __len__(self) -> int: ...
    def __getitem__(self, part: slice, /) -> Array: ...


Chunks: TypeAlias = Sequence[Array]  # one for each rank

T = TypeVar("T")
OnRoot: TypeAlias = T | Any  # OnRoot[Array]: an Array on the root, None elsewhere; used as if it were always an Array

Made = NewType("Made", object)  # what Isend, Irecv, op and copy return; only the driver knows what is inside
Item: TypeAlias = Made | "Algorithm" | None
Round: TypeAlias = Item | tuple[Item, ...]
Algorithm: TypeAlias = Generator[Round, None, None]
Program: TypeAlias = Callable[["Comm", "Op"], Algorithm]  # an algorithm with its other arguments bound


class Comm:
    """A group of ranks as an algorithm sees it, on one path (the root or a lane) of one call.

    Attributes:
        rank: this rank within the group.
        size: ranks in the group.
        ranks: the group's ranks, numbered as in the whole communicator.
        number: the path's number, 0 for the root; lane k of path m is 8 m + k + 1, so that no two paths share one.
    """

    __slots__ = ("call", "number", "rank", "ranks", "size")

    def __init__(self, call: Call, rank: int, ranks: Sequence[int], number: int = 0) -> None:
        self.call, self.rank, self.ranks, self.number = call, rank, ranks, number
        self.size = len(ranks)

    def Isend(self, array: Array, dest: int) -> Item:
        """A message with the content of `array` to rank `dest`; `array` must not change before the round has ended."""
        return self.call.isend(array, self.ranks[dest], self.number)

    def Irecv(self, array: Array, source: int) -> Item:
        """`array` holds the next message of rank `source` when the round has ended."""
        return self.call.irecv(array, self.ranks[source], self.number)

    def copy(self, out: Array, array: Array) -> Item:
        """`out` holds what `array` holds; `copy(x, x)` is legal and does nothing."""
        return self.call.copy(out, array)

    def scratch(self, like: Array, *more: Array) -> Array:
        """Memory of the type of `like` and as long as all these arrays together, with nothing in it yet; the call's
        until it ends."""
        return self.call.scratch(like, len(like) + sum(map(len, more)))

    def lane(self, k: int) -> Comm:
        """The same group on lane k, 0 <= k < 8, at most two deep: for a generator that runs beside others."""
        number = LANES * self.number + k + 1
        if not (0 <= k < LANES and number < NUMBERS):
            raise ValueError(f"lane: k is {k} on path {self.number}; lanes go from 0 to {LANES - 1}, at most two deep")
        return Comm(self.call, self.rank, self.ranks, number)

    def group(self, ranks: Sequence[int]) -> Comm:
        """The comm of these ranks of this one (the own rank among them), in that order, on the same path."""
        if self.rank not in ranks:
            raise ValueError(f"group: rank {self.rank} is not among the ranks {list(ranks)}")
        return Comm(self.call, ranks.index(self.rank), [self.ranks[r] for r in ranks], self.number)


class Op:
    """op(out, a, b): out holds a op b; out may be a or b.

    Every element of every result passes exactly one `op.finish` on its way (an average is scaled there). A composition
    gives `op` to the phase that completes the reduction and `op.partial`, whose finish does nothing, to earlier ones.
    Where two ranks compute the same element, both pass the lower rank's operand as a: bits can depend on the order.
    """

    __slots__ = ("finish", "reduce")

    def __init__(self, reduce: Callable[[Any, Any, Any], Item], finish: Callable[[Any], Item]) -> None:
        self.reduce, self.finish = reduce, finish

    @property
    def partial(self) -> Op:
        """The same operation, with a `finish` that does nothing."""
        return Op(self.reduce, _nothing)

    def __call__(self, out: Array, a: Array, b: Array) -> Item:
        return self.reduce(out, a, b)


def _nothing(out: Array) -> None:
    return None


class Call:
    """One collective under way, as its driver supplies it; the driver owns the meaning of everything made here.

    `made` lists what the running generator made since its last yield, in order: at each yield the driver takes it as
    the round. Between two yields only one generator runs, so one list serves all paths of the call. A driver knows more
    of its arrays than an algorithm may, so they are Any here.
    """

    __slots__ = ("comm", "made", "op")

    def __init__(
        self,
        rank: int,
        size: int,
        reduce: Callable[[Any, Any, Any], Any],
        finish: Callable[[Any], Any] | None,
    ) -> None:
        """Of `size` ranks, this is `rank`; reduce(out, a, b) and finish(out) or None are what `op` does."""
        self.made: list[Any] = []
        self.comm = Comm(self, rank, range(size))
        self.op = Op(reduce, finish or _nothing)

    def isend(self, array: Any, peer: int, number: int) -> Item:
        raise NotImplementedError

    def irecv(self, array: Any, peer: int, number: int) -> Item:
        raise NotImplementedError

    def copy(self, out: Any, array: Any) -> Item:
        raise NotImplementedError

    def scratch(self, like: Any, count: int) -> Array:
        raise NotImplementedError
