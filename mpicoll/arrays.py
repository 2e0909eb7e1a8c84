"""The kinds of arrays that collectives work on: what `Kind` asks for, NumPy's, and which kind an array is of.

CuPy's kind is in cupy_arrays.py, which is imported when the first CuPy array appears.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import sys
import threading
from collections.abc import Callable
from typing import Any, ClassVar, Protocol

import numpy as np
from ml_dtypes import bfloat16, float8_e4m3fn, float8_e5m2
from mpi4py import MPI
from numpy.typing import NDArray

OPS = ("sum", "prod", "max", "min", "avg")
MPI_OPS = {"sum": MPI.SUM, "prod": MPI.PROD, "max": MPI.MAX, "min": MPI.MIN}

# The types that collectives take, and how they travel; None: as bytes, since MPI may not know the type. What is reduced
# is reduced in the type itself: floats of 16 and 8 bits are rounded to it after each addition.
DATATYPES: dict[np.dtype[Any], MPI.Datatype | None] = {
    np.dtype(name): datatype
    for name, datatype in {
        "float32": MPI.FLOAT,
        "float64": MPI.DOUBLE,
        "longdouble": MPI.LONG_DOUBLE,
        "float16": None,
        bfloat16: None,
        float8_e4m3fn: None,
        float8_e5m2: None,
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


class Event(Protocol):
    """Work under way on a device."""

    def Test(self) -> bool:
        """Whether it is done."""


class Pinned(Protocol):
    """Where memory of the host comes from that a device copies from and to while the program goes on."""

    def memory(self, nbytes: int) -> NDArray[np.uint8]: ...


class Kind(Protocol):
    """What the collectives need of a kind of arrays. Arrays are flat here, but for `empty` and `writable`.

    Local work (copy, reduction, finishing) is either done when the method returns, which then returns None, or under
    way on a device: then it returns an Event, which a round waits for like for a message.

    Attributes:
        name: in words, for error messages.
        direct: whether MPI may be given the memory of an array; None: always. What it may not be given travels by way
            of `pinned` memory, see progress/staging.py.
        span: a context manager that names, in profilers, what is done inside; None: nobody looks.
    """

    name: str
    pinned: Pinned
    direct: Callable[[Any], bool] | None
    span: Callable[[str], contextlib.AbstractContextManager[None]] | None

    def ready(self) -> Event | None:
        """The event after which what the caller has queued so far is done: the collective's first step waits for it."""

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """A new array for the caller."""

    def writable(self, array: Any) -> bool:
        """Whether `array` may be written to."""

    def shares_memory(self, a: Any, b: Any) -> bool:
        """Whether two arrays overlap."""

    def same_memory(self, a: Any, b: Any) -> bool:
        """Whether two arrays are the same elements."""

    def as_bytes(self, array: Any) -> Any:
        """The array's memory, as mpi4py takes it."""

    def memory(self, nbytes: int) -> Any:
        """Fresh memory of `nbytes` bytes with nothing in it yet, for `view`. It is kept and used again."""

    def view(self, memory: Any, count: int, dtype: np.dtype[Any]) -> Any:
        """`count` elements of type `dtype` at the start of `memory`."""

    def copy(self, out: Any, array: Any) -> Event | None:
        """out holds what array holds (the same memory as it is)."""

    def reduction(self, op: str) -> Callable[[Any, Any, Any], Event | None]:
        """The function (out, a, b) after which out holds a op b, element by element; avg adds."""

    def finishing(self, op: str, size: int) -> Callable[[Any], Event | None] | None:
        """The function (out) after which a reduction over `size` ranks is what `op` promises; None: it is already."""

    def to_host(self, host: NDArray[np.uint8], array: Any) -> Event:
        """The pinned memory `host` holds the bytes of `array`; copies in one direction are done in order."""

    def to_device(self, array: Any, host: NDArray[np.uint8]) -> Event:
        """The first bytes of `array` are those of the pinned memory `host`; copies in one direction are in order."""


_copied = 32 * 1024, 512 * 1024  # bytes; see Reduction


def copy_between(start: int, stop: int) -> None:
    """From now on reductions of `start` to `stop` bytes in this process go by way of fresh memory; see Reduction."""
    global _copied
    _copied = start, stop


class _NoPinned:
    """NumPy's arrays need no pinned memory: they are in host memory."""

    @staticmethod
    def memory(nbytes: int) -> NDArray[np.uint8]:
        raise NotImplementedError


class NumPyArrays:
    """Arrays in host memory; everything is done at once, so nothing here returns an event."""

    name: ClassVar[str] = "a NumPy array"
    pinned: ClassVar[Pinned] = _NoPinned
    direct: ClassVar[Callable[[Any], bool] | None] = None
    span: ClassVar[Callable[[str], contextlib.AbstractContextManager[None]] | None] = None

    empty: ClassVar[Callable[..., Any]] = staticmethod(np.empty)
    shares_memory: ClassVar[Callable[..., bool]] = staticmethod(np.may_share_memory)  # of contiguous arrays: exact

    @staticmethod
    def ready() -> Event | None:
        return None

    @staticmethod
    def writable(array: NDArray[Any]) -> bool:
        return array.flags.writeable

    @staticmethod
    def same_memory(a: NDArray[Any], b: NDArray[Any]) -> bool:
        return len(a) == len(b) and a.__array_interface__["data"] == b.__array_interface__["data"]

    @staticmethod
    def as_bytes(array: NDArray[Any]) -> NDArray[np.uint8]:
        return array.view(np.uint8)

    @staticmethod
    def memory(nbytes: int) -> NDArray[np.uint8]:
        return np.empty(nbytes, np.uint8)

    @staticmethod
    def view(memory: NDArray[np.uint8], count: int, dtype: np.dtype[Any]) -> NDArray[Any]:
        return memory[: count * dtype.itemsize].view(dtype)

    @staticmethod
    def copy(out: NDArray[Any], array: NDArray[Any]) -> Event | None:
        if out is not array and not np.may_share_memory(out, array):
            out[...] = array
        return None

    @staticmethod
    def reduction(op: str) -> Callable[[Any, Any, Any], Event | None]:
        return Reduction(_UFUNCS[op])

    @staticmethod
    def finishing(op: str, size: int) -> Callable[[Any], Event | None] | None:
        if op != "avg":
            return None

        def divide(out: NDArray[Any]) -> None:
            numbers = parts(out)
            _quiet.run(np.divide, numbers, size, numbers)  # a multiplication by 1 / size would round twice

        return divide

    @staticmethod
    def to_host(host: NDArray[np.uint8], array: NDArray[Any]) -> Event:
        raise NotImplementedError

    @staticmethod
    def to_device(array: NDArray[Any], host: NDArray[np.uint8]) -> Event:
        raise NotImplementedError


def parts(array: Any) -> Any:
    """The array; of complex numbers their real and imaginary parts: to divide by a complex number rounds twice."""
    return array.view(f"f{array.itemsize // 2}") if array.dtype.kind == "c" else array


class _Quiet(threading.local):
    """`run(function, *arguments)` with overflow and NaN as results like others, as in MPI.

    With numpy.seterr(all="raise") they would otherwise break the collective on one rank, in the middle, while the
    others wait. NumPy keeps its error state in a context variable, so a context of each thread's own (it cannot be
    entered twice) is enough, and takes a fraction of the time of numpy.errstate.
    """

    def __init__(self) -> None:
        self.context = contextvars.copy_context()
        self.run = self.context.run
        self.run(np.seterr, all="ignore")


_quiet = _Quiet()


class Reduction:
    """ufunc as (out, a, b), in the faster of two ways that give the same bits.

    What is reduced into has just been read by another rank, so its cache lines are shared, and writing it element by
    element waits for each of them. In a range of sizes it is faster to reduce into fresh memory and to copy that.
    """

    def __init__(self, ufunc: Callable[..., Any]) -> None:
        self.ufunc = ufunc

    def __call__(self, out: NDArray[Any], a: NDArray[Any], b: NDArray[Any]) -> None:
        if self._copies(out, a, b):
            out[...] = _quiet.run(self.ufunc, a, b)
        else:
            _quiet.run(self.ufunc, a, b, out)

    def on(self, out: NDArray[Any], a: NDArray[Any], b: NDArray[Any]) -> Callable[[], None]:
        """What does it for these arrays each time it is called, by one thread at a time."""
        if self._copies(out, a, b):
            return functools.partial(self, out, a, b)
        return functools.partial(_quiet.context.copy().run, self.ufunc, a, b, out)  # no call of Python's

    @staticmethod
    def _copies(out: NDArray[Any], a: NDArray[Any], b: NDArray[Any]) -> bool:
        start, stop = _copied
        return start <= out.nbytes <= stop and (np.may_share_memory(out, a) or np.may_share_memory(out, b))


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


FLOAT8 = (np.dtype(float8_e4m3fn), np.dtype(float8_e5m2))


def pairs(op: str, dtype: np.dtype[Any]) -> NDArray[np.uint8]:
    """The bits of a op b for all pairs of 8-bit floats, those of a and b at [256 a + b]: (65536,)."""
    codes = np.arange(256, dtype=np.uint8).view(dtype)
    return _bits(_quiet.run(_UFUNCS[op], codes[:, None], codes[None, :]))


def quotients(size: int, dtype: np.dtype[Any]) -> NDArray[np.uint8]:
    """The bits of every 8-bit float divided by `size`: (256,)."""
    return _bits(_quiet.run(np.divide, np.arange(256, dtype=np.uint8).view(dtype), size))


def _bits(array: NDArray[Any]) -> NDArray[np.uint8]:
    return array.reshape(-1).view(np.uint8)


KINDS: dict[type, Callable[[Any], Kind]] = {}  # further types of arrays, and what tells the kind of one


def kind_of(array: object) -> Kind | None:
    """The kind of `array`; None if it is not an array of a known kind."""
    kind = type(array)
    if kind is np.ndarray or kind is np.memmap:  # no other subclass: a masked array would lose its mask
        return NumPyArrays
    if kind not in KINDS and "cupy" in sys.modules:
        from . import cupy_arrays

        KINDS.update(cupy_arrays.KINDS)
    tell = KINDS.get(kind)
    return tell and tell(array)
