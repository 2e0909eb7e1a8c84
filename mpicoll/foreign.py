"""Arrays of other libraries, such as torch, JAX and Numba, as NumPy's or CuPy's on the same memory.

Libraries lend memory by two protocols. By DLPack they hand out a capsule with the address, shape, type and device of
an array, and a function that gives it back, called when nobody uses the memory any more. `__cuda_array_interface__`
is a dictionary with the like, for CUDA devices only; DLPack is preferred, since it needs no waiting.

    where the memory is        becomes         work that the lender has queued on it
    host, also pinned          NumPy's array   is the caller's to wait for (JAX waits itself)
    CUDA device, also managed  CuPy's array    comes before what CuPy's current stream is given afterwards

The second holds because CuPy passes its current stream to the lender's `__dlpack__`, which makes the stream wait for
the lender's own. By `__cuda_array_interface__`, CuPy blocks until the stream named there is idle (and is left out by
the environment variable CUPY_CUDA_ARRAY_INTERFACE_SYNC=0, or if a lender names none).

Read-only memory stays so. Capsules of the older kind, without a version, cannot say whether theirs is, and count as
read-only (all of JAX's arrays, which nobody may write to, come in such); NumPy before 2.2.5 takes all as read-only.
CuPy before 14 asks for the older kind.

The lender must keep an array where it is while it is lent: torch's `resize_`, `set_` and assignments to `data` free the
memory, though it is in use.

Sources: dlpack.h (DLPack 1.3), and the Python specification of DLPack; the CUDA Array Interface, version 3.
"""

from __future__ import annotations

import ctypes
import sys
import weakref
from typing import Any

import numpy as np
from ml_dtypes import bfloat16, float8_e4m3fn, float8_e5m2

_HOST, _CUDA = {1, 3}, {2, 13}  # DLPack's numbers: of the CPU and pinned for CUDA; of a CUDA device and managed
_ELSEWHERE = {4: "OpenCL", 7: "Vulkan", 8: "Metal", 10: "ROCm", 14: "oneAPI", 15: "WebGPU"}

# DLPack's codes of types, int, uint, float, complex and bool, with the bits that NumPy and CuPy import
_INT, _UINT, _FLOAT, _COMPLEX, _BOOL = 0, 1, 2, 5, 6
_KNOWN = {_INT: (8, 16, 32, 64), _UINT: (8, 16, 32, 64), _FLOAT: (16, 32, 64), _COMPLEX: (64, 128), _BOOL: (8,)}
# (code, bits) of those that they import as unsigned integers only
_OURS = {(4, 16): np.dtype(bfloat16), (10, 8): np.dtype(float8_e4m3fn), (12, 8): np.dtype(float8_e5m2)}

_READ_ONLY, _COPIED = 1, 2  # bits of a capsule's flags


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
    )


class _Versioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


class _Unversioned(ctypes.Structure):
    _fields_ = (("tensor", _Tensor),)
    major, flags = 1, _READ_ONLY


_CAPSULES = {b"dltensor_versioned": _Versioned, b"dltensor": _Unversioned}

_name = ctypes.pythonapi.PyCapsule_GetName
_name.restype, _name.argtypes = ctypes.c_char_p, (ctypes.py_object,)
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)

# CuPy's arrays have no flag for it. By id, since they cannot be hashed.
_read_only: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()


class _Refused(BufferError):
    """Why an array cannot be used, in words for users."""


class _Lender:
    """`array` as NumPy and CuPy can import it: types that they do not know go by as unsigned integers.

    Attributes:
        dtype: the real type, if it is one of those; set, like read_only, when the memory has been lent.
    """

    def __init__(self, array: Any, device: tuple[int, int]) -> None:
        self.array, self.device = array, device
        self.dtype: np.dtype[Any] | None = None
        self.read_only = True

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def __dlpack__(self, **keywords: Any) -> Any:
        if "copy" in keywords:  # the importer knows the newer protocol; it tries the older one if the lender does not
            keywords["copy"] = False
        capsule = self.array.__dlpack__(**keywords)
        name = _name(capsule)
        kind = _CAPSULES.get(name)
        managed = kind and kind.from_address(_pointer(capsule, name))
        if managed is None or managed.major != 1:
            return capsule  # used before, or unknown: nothing that may be read, as the importer says
        if managed.flags & _COPIED:
            raise _Refused("its library lends copies only; pass an array of NumPy's or CuPy's")
        code, bits = managed.tensor.code, managed.tensor.bits
        if (code, bits) in _OURS:
            self.dtype, managed.tensor.code = _OURS[code, bits], _UINT
        elif bits not in _KNOWN.get(code, ()):
            raise _Refused(f"its elements are of a type that is not supported (in DLPack, {bits} bits of kind {code})")
        self.read_only = bool(managed.flags & _READ_ONLY)
        return capsule


def _from_dlpack(array: Any) -> Any:
    device = array.__dlpack_device__()
    place, lender = int(device[0]), _Lender(array, device)
    if place not in _HOST | _CUDA:
        name = _ELSEWHERE.get(place, "unknown")
        raise _Refused(f"it is on a device of kind {name} ({place} in DLPack), not CUDA; pass a copy in host memory")
    result: Any = (np if place in _HOST else _cupy()).from_dlpack(lender)
    if lender.dtype is not None:
        result = result.view(lender.dtype)
    if place in _CUDA and lender.read_only:
        _read_only[id(result)] = result
    return result


def _from_interface(array: Any) -> Any:
    result = _cupy().asarray(array)
    if array.__cuda_array_interface__["data"][1]:
        _read_only[id(result)] = result
    return result


def _cupy() -> Any:
    try:
        import cupy
    except ImportError as error:
        raise _Refused(f"it is on a CUDA device, and CuPy is missing ({error}); install mpicoll[cuda13]") from error
    return cupy


def _native(array: Any) -> Any:
    if isinstance(array, (np.ndarray, np.generic)):
        return array
    cupy = sys.modules.get("cupy")
    if cupy is not None and isinstance(array, cupy.ndarray):
        return array
    if hasattr(array, "__dlpack__") and hasattr(array, "__dlpack_device__"):
        return _from_dlpack(array)
    if hasattr(array, "__cuda_array_interface__"):
        return _from_interface(array)
    return array


def native(array: Any) -> Any:
    """`array` itself if it is NumPy's or CuPy's, or cannot be used; else one of NumPy's or CuPy's on the same memory.

    That has the same shape, strides and type, and keeps the memory alive. Why an array cannot be used, tells `refusal`.
    """
    if type(array) is np.ndarray:
        return array
    try:
        return _native(array)
    except Exception:  # whatever another library raises
        return array


def refusal(array: Any) -> str | None:
    """Why `native` cannot use `array` although it offers its memory, and the way out; None if that is not so."""
    try:
        _native(array)
    except _Refused as error:
        return str(error)
    except Exception as error:
        return f"its memory cannot be used: {str(error) or type(error).__name__}"
    return None


def refresh(array: Any) -> None:
    """What the lender has queued on `array` so far comes before what CuPy's current stream is given from now on.

    For this it is lent once more, and given back at once.

    Raises:
        Exception: the lender no longer lends it; of whatever class it chooses.
    """
    _native(array)


def writable(array: Any) -> bool:
    """Whether the memory of `array`, as it came from `native`, may be written to; CuPy cannot tell.

    A view of it, for example by slicing, is not known to be read-only.
    """
    return getattr(array.flags, "writeable", True) and _read_only.get(id(array)) is not array
