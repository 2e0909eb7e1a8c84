"""CuPy's arrays as a kind: kernels, copies and events on streams of our own, on the device where the array is.

The host waits for the event of every step before it posts the next message, since MPI knows nothing of streams.

Reductions are done in the arrays' own type, as NumPy does: each addition or product of 16-bit floats is computed in
float32 and rounded; for 8-bit floats a table of all pairs, made by NumPy, gives the very bits that the CPU gives.

Scratch memory comes from cudaMalloc itself. Memory of stream-ordered pools (cudaMallocAsync) and managed memory cannot
be opened by another process with cudaIpcOpenMemHandle, which CUDA-aware MPIs do within a node: such arrays of users
travel by way of pinned host memory, whatever the MPI can do.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Callable
from typing import Any

import cupy
import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from . import arrays, foreign, gpu, probe

_UFUNCS: dict[str, Callable[..., Any]] = {
    "sum": cupy.add,
    "avg": cupy.add,
    "prod": cupy.multiply,
    "max": cupy.maximum,
    "min": cupy.minimum,
}
_pairs = cupy.ElementwiseKernel(
    "uint8 a, uint8 b, raw uint8 table", "uint8 out", "out = table[a * 256 + b]", "mpicoll_pairs"
)
_IPC_CAPABLE = 10  # CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE
_NOT_READY, _NO_MEMORY = 600, 2  # cudaErrorNotReady, cudaErrorMemoryAllocation


class _Event:
    """Whatever its stream was given so far."""

    __slots__ = ("event",)

    def __init__(self, stream: Any) -> None:
        self.event = cupy.cuda.Event(disable_timing=True)
        self.event.record(stream)

    def Test(self) -> bool:
        runtime = cupy.cuda.runtime
        status = runtime.eventQuery(self.event.ptr)
        if status not in (0, _NOT_READY):  # an event of work that failed would never be done
            raise runtime.CUDARuntimeError(status)
        return bool(status == 0)


class _Pinned:
    @staticmethod
    def memory(nbytes: int) -> NDArray[np.uint8]:
        return np.frombuffer(cupy.cuda.alloc_pinned_memory(nbytes), np.uint8, nbytes)


class CuPyArrays:
    """Arrays on one device."""

    def __init__(self, device: int) -> None:
        self.pinned: arrays.Pinned = _Pinned
        self.aware = probe.cuda_aware().aware  # a wrong MPICOLL_CUDA, or a slow probe, comes before any message
        self.direct: Callable[[Any], bool] | None = self._direct
        self.span: Callable[[str], contextlib.AbstractContextManager[None]] | None = gpu.span
        self.name = f"a CuPy array on GPU {device}"
        self.device = cupy.cuda.Device(device)
        with self.device:
            self.kernels, self.outward, self.inward = (cupy.cuda.Stream(non_blocking=True) for _ in range(3))

    def _direct(self, array: Any) -> bool:
        if not self.aware:
            return False
        with self.device:  # the driver is asked in its context, also by a thread that has none yet
            return _ipc_capable(array.data.ptr)

    def ready(self) -> _Event:
        with self.device:
            return _Event(cupy.cuda.get_current_stream())

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        with self.device:
            return cupy.empty(shape, _storage(dtype)).view(dtype)

    @staticmethod
    def writable(array: Any) -> bool:
        return foreign.writable(array)

    @staticmethod
    def shares_memory(a: Any, b: Any) -> bool:
        if not (a.nbytes and b.nbytes):
            return False
        return bool(a.data.ptr < b.data.ptr + b.nbytes and b.data.ptr < a.data.ptr + a.nbytes)

    @staticmethod
    def same_memory(a: Any, b: Any) -> bool:
        return len(a) == len(b) and bool(a.data.ptr == b.data.ptr)

    @staticmethod
    def as_bytes(array: Any) -> MPI.buffer:
        return MPI.buffer.fromaddress(array.data.ptr, array.nbytes)

    def memory(self, nbytes: int) -> Any:
        with self.device:
            try:
                memory = cupy.cuda.Memory(nbytes)
            except cupy.cuda.runtime.CUDARuntimeError as error:
                if error.status != _NO_MEMORY:
                    raise
                cupy.get_default_memory_pool().free_all_blocks()  # what CuPy keeps for later is free for us
                memory = cupy.cuda.Memory(nbytes)
            return cupy.ndarray(nbytes, np.uint8, cupy.cuda.MemoryPointer(memory, 0))

    @staticmethod
    def view(memory: Any, count: int, dtype: np.dtype[Any]) -> Any:
        return memory[: count * dtype.itemsize].view(dtype)

    def copy(self, out: Any, array: Any) -> _Event | None:
        if self.same_memory(out, array):
            return None
        return self._transfer(self.kernels, out.data.ptr, array.data.ptr, out.nbytes, "memcpyDeviceToDevice")

    def to_host(self, host: NDArray[np.uint8], array: Any) -> _Event:
        return self._transfer(self.outward, host.ctypes.data, array.data.ptr, len(host), "memcpyDeviceToHost")

    def to_device(self, array: Any, host: NDArray[np.uint8]) -> _Event:
        return self._transfer(self.inward, array.data.ptr, host.ctypes.data, len(host), "memcpyHostToDevice")

    def _transfer(self, stream: Any, out: int, source: int, nbytes: int, direction: str) -> _Event:
        runtime = cupy.cuda.runtime
        with self.device:
            runtime.memcpyAsync(out, source, nbytes, getattr(runtime, direction), stream.ptr)
            return _Event(stream)

    def reduction(self, op: str) -> Callable[[Any, Any, Any], _Event | None]:
        ufunc = _UFUNCS[op]

        def reduce(out: Any, a: Any, b: Any) -> _Event | None:
            if not len(out):
                return None
            with self.device, self.kernels:
                if out.dtype in arrays.FLOAT8:
                    table = self._table(op, out.dtype)
                    _pairs(a.view(np.uint8), b.view(np.uint8), table, out.view(np.uint8))
                else:  # CuPy copies an operand that is on out's memory, unless it is the very same object
                    a, b = (out if self.same_memory(x, out) else x for x in (a, b))
                    ufunc(a, b, out)
                return _Event(self.kernels)

        return reduce

    def finishing(self, op: str, size: int) -> Callable[[Any], _Event | None] | None:
        if op != "avg":
            return None

        def divide(out: Any) -> _Event | None:
            if not len(out):
                return None
            with self.device, self.kernels:
                if out.dtype in arrays.FLOAT8:
                    bits = out.view(np.uint8)
                    _pairs(np.uint8(0), bits, self._quotients(size, out.dtype), bits)
                else:
                    parts = arrays.parts(out)
                    cupy.true_divide(parts, size, parts)
                return _Event(self.kernels)

        return divide

    @functools.lru_cache(maxsize=64)  # noqa: B019 kinds live as long as the program
    def _table(self, op: str, dtype: np.dtype[Any]) -> Any:
        return cupy.asarray(arrays.pairs(op, dtype))

    @functools.lru_cache(maxsize=64)  # noqa: B019
    def _quotients(self, size: int, dtype: np.dtype[Any]) -> Any:
        return cupy.asarray(arrays.quotients(size, dtype))


def _storage(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(np.uint8) if dtype in arrays.FLOAT8 else dtype  # CuPy makes none of 8 bits, but views them


@functools.cache
def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


def _ipc_capable(pointer: int) -> bool:
    """Whether other processes may open this memory."""
    capable = ctypes.c_int(0)
    failed = _driver().cuPointerGetAttribute(ctypes.byref(capable), _IPC_CAPABLE, ctypes.c_uint64(pointer))
    return not failed and bool(capable.value)


@functools.cache
def _kind(device: int) -> arrays.Kind:
    return CuPyArrays(device)


KINDS: dict[type, Callable[[Any], arrays.Kind]] = {cupy.ndarray: lambda array: _kind(array.device.id)}
