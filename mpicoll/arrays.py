"""The kinds of arrays that collectives work on, and all that depends on the kind; the only file that knows CuPy.

A kind supplies what `NumPyArrays` below supplies. Local work (reduce, finish, copy) is either done when the method
returns, which then returns None, or under way on a device: then it returns an event, an object with `Test()`, which a
round waits for like for a message. `ready()` is the event after which the caller's own queued work is done, or None: a
collective takes its first step only then.
"""

from __future__ import annotations

import contextvars
import functools
import threading
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from ml_dtypes import bfloat16
from mpi4py import MPI
from numpy.typing import NDArray

OPS = ("sum", "prod", "max", "min", "avg")
MPI_OPS = {"sum": MPI.SUM, "prod": MPI.PROD, "max": MPI.MAX, "min": MPI.MIN}

# The types that collectives take, and how they travel; None: as bytes, since MPI may not know the type. What is reduced
# is reduced by NumPy in the type itself, so sums of float16 and bfloat16 are rounded to it after each addition.
DATATYPES: dict[np.dtype[Any], MPI.Datatype | None] = {
    np.dtype(name): datatype
    for name, datatype in {
        "float32": MPI.FLOAT,
        "float64": MPI.DOUBLE,
        "longdouble": MPI.LONG_DOUBLE,
        "float16": None,
        bfloat16: None,
        "complex64": MPI.C_FLOAT_COMPLEX,
        "complex128": MPI.C_DOUBLE_COMPLEX,
        "clongdouble": MPI.C_LONG_DOUBLE_COMPLEX,
        "int8": MPI.INT8_T,
        "int16": MPI.INT16_T,
        "int32": MPI.INT32_T,
        "int64": MPI.INT64_T,
        "uint8": MPI.UINT8_T,
        "uint16": MPI.UINT16_T,
        "uint32": MPI.UINT32_T,
        "uint64": MPI.UINT64_T,
        "bool": None,
    }.items()
}


def undefined(op: str, dtype: np.dtype[Any]) -> str | None:
    """Why `op` is not defined for `dtype`, and what to do; None if it is."""
    if dtype.kind in "iu" and op == "avg":
        return "the average is no integer in general; use 'sum' and divide, or floats"
    if dtype.kind == "c" and op in ("max", "min"):
        return "complex numbers have no order; reduce their real or absolute values"
    if dtype.kind == "b" and op not in ("max", "min"):
        return "use 'max' for any and 'min' for all, or integers to count"
    return None


COPIED_FROM, COPIED_TO = 32 * 1024, 512 * 1024  # bytes; see _reduction


class NumPyArrays:
    """Arrays in host memory; everything is done at once, so nothing here returns an event."""

    empty = staticmethod(np.empty)
    shares_memory = staticmethod(np.may_share_memory)  # of contiguous arrays: exact

    @staticmethod
    def same_memory(a: NDArray[Any], b: NDArray[Any]) -> bool:
        """Whether two flat arrays are the same elements."""
        return len(a) == len(b) and a.__array_interface__["data"] == b.__array_interface__["data"]

    @staticmethod
    def ready() -> Any:
        """None: what the caller did to the array is done."""

    @staticmethod
    def as_bytes(array: NDArray[Any]) -> NDArray[np.uint8]:
        """The array's memory as a flat array of uint8."""
        return array.view(np.uint8)

    @staticmethod
    def memory(nbytes: int) -> NDArray[np.uint8]:
        """Fresh memory of `nbytes` bytes, a flat array of uint8, with nothing in it yet."""
        return np.empty(nbytes, np.uint8)

    @staticmethod
    def view(memory: NDArray[np.uint8], count: int, dtype: np.dtype[Any]) -> NDArray[Any]:
        """`count` elements of type `dtype` at the start of `memory`."""
        return memory[: count * dtype.itemsize].view(dtype)

    @staticmethod
    def copy(out: NDArray[Any], array: NDArray[Any]) -> Any:
        """out holds what array holds (the same memory as it is)."""
        if out is not array and not np.may_share_memory(out, array):
            out[...] = array

    @staticmethod
    def reduction(op: str) -> Callable[..., Any]:
        """The function (out, a, b) after which out holds a op b, element by element; avg adds."""
        return _reduction(_UFUNCS[op])

    @staticmethod
    def finishing(op: str, size: int) -> Callable[..., Any] | None:
        """The function (out) after which a reduction over `size` ranks is what `op` promises; None: it is already."""
        if op != "avg":
            return None

        def divide(out: NDArray[Any]) -> None:
            _quiet.run(np.divide, out, size, out)  # a multiplication by 1 / size would round twice

        return divide


Kind: TypeAlias = type[NumPyArrays]


class _Quiet(threading.local):
    """`run(function, *arguments)` with overflow and NaN as results like others, as in MPI.

    With numpy.seterr(all="raise") they would otherwise break the collective on one rank, in the middle, while the
    others wait. NumPy keeps its error state in a context variable, so a context of each thread's own (it cannot be
    entered twice) is enough, and takes a fraction of the time of numpy.errstate.
    """

    def __init__(self) -> None:
        self.run = contextvars.copy_context().run
        self.run(np.seterr, all="ignore")


_quiet = _Quiet()


@functools.cache
def _reduction(ufunc: Callable[..., Any]) -> Callable[..., Any]:
    """ufunc as (out, a, b), in the faster of two ways that give the same bits.

    What is reduced into has just been read by another rank, so its cache lines are shared, and writing it element by
    element waits for each of them. In a range of sizes it is faster to reduce into fresh memory and to copy that.
    """

    def reduce(out: NDArray[Any], a: NDArray[Any], b: NDArray[Any]) -> None:
        if COPIED_FROM <= out.nbytes <= COPIED_TO and (np.may_share_memory(out, a) or np.may_share_memory(out, b)):
            out[...] = _quiet.run(ufunc, a, b)
        else:
            _quiet.run(ufunc, a, b, out)

    return reduce


def _maximum(a: Any, b: Any, out: Any = None) -> Any:
    return np.maximum(a, b, out=out)  # a third argument is deprecated there


def _minimum(a: Any, b: Any, out: Any = None) -> Any:
    return np.minimum(a, b, out=out)


_UFUNCS: dict[str, Callable[..., Any]] = {
    "sum": np.add,
    "avg": np.add,
    "prod": np.multiply,
    "max": _maximum,
    "min": _minimum,
}


def kind_of(array: object) -> Kind | None:
    """The kind of `array`; None if it is not an array of a known kind."""
    return NumPyArrays if type(array) in (np.ndarray, np.memmap) else None  # a masked array would lose its mask
