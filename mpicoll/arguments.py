"""The checks of what users pass, before any message is sent; errors name call, argument, both values, the way out."""

import math
import operator

from mpi4py import MPI

from . import foreign
from .arrays import DATATYPES, MPI_OPS, OPS, kind_of, undefined

_NAMES = ", ".join(str(dtype) for dtype in DATATYPES)


def buffer(call, name, array, writable=False):
    """The kind of `array` and its flat view.

    Raises:
        TypeError: it is not an array, or of a dtype that cannot be sent.
        ValueError: it is not C-contiguous, or read-only though the call writes to it.
    """
    kind = kind_of(array)
    if kind is None:
        if why := foreign.refusal(array):
            raise TypeError(f"{call}: {name} is of type {type(array).__name__}, and {why}")
        raise TypeError(
            f"{call}: {name} is of type {type(array).__name__}; mpicoll's collectives work on buffers, so pass a NumPy "
            f"array: numpy.asarray({name}) (lower case does not mean pickled objects here, as it does in mpi4py)"
        )
    if array.dtype not in DATATYPES:
        raise TypeError(f"{call}: {name} has dtype {array.dtype}; supported are {_NAMES}; convert it with astype")
    if not array.flags.c_contiguous:
        raise ValueError(
            f"{call}: {name} is not C-contiguous: shape {array.shape}, strides {array.strides} bytes; "
            f"pass numpy.ascontiguousarray({name})"
        )
    if writable and not kind.writable(array):
        raise ValueError(f"{call}: {name} is read-only, but the result is written there; pass a copy")
    return kind, array if array.ndim == 1 else array.reshape(-1)


def receive(call, kind, recvbuf, shape, sendbuf, what):
    """recvbuf and its flat view; a new array of the given shape and sendbuf's dtype if it is None.

    `what` says in words why recvbuf must have so many elements.
    """
    if recvbuf is None:
        recvbuf = kind.empty(shape, sendbuf.dtype)
        return recvbuf, recvbuf.reshape(-1)
    recv_kind, flat = buffer(call, "recvbuf", recvbuf, writable=True)
    same_type(call, kind, recv_kind, sendbuf, recvbuf)
    if len(flat) != math.prod(shape):
        raise ValueError(f"{call}: recvbuf has {len(flat)} elements, {what}")
    return recvbuf, flat


def same_type(call, send_kind, recv_kind, sendbuf, recvbuf):
    """Nothing, or a TypeError if the arrays differ in kind or dtype."""
    if recv_kind is not send_kind:
        raise TypeError(f"{call}: sendbuf is {send_kind.name}, recvbuf {recv_kind.name}; use one kind, in one place")
    if recvbuf.dtype != sendbuf.dtype:
        raise TypeError(
            f"{call}: recvbuf has dtype {recvbuf.dtype}, sendbuf has {sendbuf.dtype}; they must be the same"
        )


def no_overlap(call, kind, whole, other, own, allowed):
    """Nothing, or a ValueError if the flat arrays whole and other overlap, unless other is just `own`.

    `allowed` says in words what may be passed for in place; None: nothing.
    """
    if len(other) and kind.shares_memory(whole, other) and not kind.same_memory(own, other):
        way_out = f", or for in place {allowed}" if allowed else "; it cannot be done in place"
        raise ValueError(f"{call}: sendbuf and recvbuf overlap; pass separate arrays{way_out}")


def operation(call, op, dtype):
    """The name of `op`, also if it is one of mpi4py's operations.

    Raises:
        ValueError: there is no such operation.
        TypeError: it is not defined for `dtype`.
    """
    if isinstance(op, MPI.Op):
        op = next((name for name, handle in MPI_OPS.items() if handle == op), op)
    if not isinstance(op, str) or op not in OPS:
        raise ValueError(f"{call}: op is {op!r}; there are {', '.join(map(repr, OPS))}")
    if why := undefined(op, dtype):
        raise TypeError(f"{call}: op {op!r} is not defined for dtype {dtype}: {why}")
    return op


def rank(call, name, value, size):
    """`value` as a rank.

    Raises:
        TypeError: it is no integer.
        ValueError: there is no such rank.
    """
    try:
        value = operator.index(value)
    except TypeError:
        raise TypeError(f"{call}: {name} is {value!r}; it is a rank, an integer") from None
    if not 0 <= value < size:
        raise ValueError(f"{call}: {name} is {value}; ranks go from 0 to {size - 1}")
    return value


def scattered(call, sendbuf, counts, size, rank, name="counts"):
    """The shape of the own part of sendbuf, cut along its first axis, and the number of elements of every rank's part.

    `name` is what the call's argument `counts` is called.

    Raises:
        ValueError: the axis does not divide by the number of ranks, or counts do not fit it.
    """
    if sendbuf.ndim == 0:
        raise ValueError(f"{call}: sendbuf has no axis to cut along; pass rows for each of {size} ranks")
    length, *row = sendbuf.shape
    if counts is None:
        if length % size:
            raise ValueError(
                f"{call}: sendbuf's first axis has length {length}, which does not divide by {size} ranks; "
                f"{'pass counts' if call == 'reduce_scatter' else 'make it divide'}"
            )
        counts = (length // size,) * size
    else:
        counts = _counts(call, name, counts, size)
        if sum(counts) != length:
            raise ValueError(f"{call}: {name} add up to {sum(counts)}, sendbuf's first axis has length {length}")
    each = math.prod(row)
    return (counts[rank], *row), tuple(count * each for count in counts)


def gathered(call, sendbuf, counts, size, rank):
    """The shape of all ranks' sendbufs along the first axis, and the number of elements of every rank's.

    Raises:
        ValueError: counts do not fit sendbuf.
    """
    length, *row = sendbuf.shape or (1,)
    if counts is None:
        counts = (length,) * size
    else:
        counts = _counts(call, "counts", counts, size)
        if counts[rank] != length:
            raise ValueError(f"{call}: counts[{rank}] is {counts[rank]}, sendbuf's first axis has length {length}")
    each = math.prod(row)
    return (sum(counts), *row), tuple(count * each for count in counts)


def received(call, sendbuf, counts, size):
    """The shape of what is received in `counts` rows from each rank, and the number of elements from each rank."""
    counts = _counts(call, "recvcounts", counts, size)
    row = sendbuf.shape[1:]
    return (sum(counts), *row), tuple(count * math.prod(row) for count in counts)


def _counts(call, name, counts, size):
    try:
        counts = tuple(operator.index(count) for count in counts)
    except TypeError:
        raise TypeError(f"{call}: {name} is {counts!r}; it is a list of {size} integers") from None
    if len(counts) != size or any(count < 0 for count in counts):
        raise ValueError(f"{call}: {name} is {counts}; it holds one count of rows, 0 or more, for each of {size} ranks")
    return counts
