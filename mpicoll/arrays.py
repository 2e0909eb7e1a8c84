"""The kinds of arrays that collectives work on, and all that depends on the kind; the only file that knows CuPy.

A kind supplies what `NumPyArrays` below supplies. Local work (reduce, finish, copy) is either done when the method
returns, which then returns None, or under way on a device: then it returns an event, an object with `Test()`, which a
round waits for like for a message. `ready()` is the event after which the caller's own queued work is done: a
collective takes its first step only then.
"""

import numpy as np
from mpi4py import MPI

OPS = ("sum", "max", "avg")

DATATYPES = {
    np.dtype(name): datatype
    for name, datatype in {
        "float32": MPI.FLOAT,
        "float64": MPI.DOUBLE,
        "int8": MPI.INT8_T,
        "int16": MPI.INT16_T,
        "int32": MPI.INT32_T,
        "int64": MPI.INT64_T,
        "uint8": MPI.UINT8_T,
        "uint16": MPI.UINT16_T,
        "uint32": MPI.UINT32_T,
        "uint64": MPI.UINT64_T,
    }.items()
}


class NumPyArrays:
    """Arrays in host memory; everything is done at once, so nothing here returns an event."""

    empty = staticmethod(np.empty)
    shares_memory = staticmethod(np.may_share_memory)  # of contiguous arrays: exact

    @staticmethod
    def same_memory(a, b):
        """Whether two flat arrays are the same elements."""
        return len(a) == len(b) and a.__array_interface__["data"] == b.__array_interface__["data"]

    @staticmethod
    def ready():
        """None: what the caller did to the array is done."""

    @staticmethod
    def memory(nbytes):
        """Fresh memory of `nbytes` bytes, a flat array of uint8, with nothing in it yet."""
        return np.empty(nbytes, np.uint8)

    @staticmethod
    def view(memory, count, dtype):
        """`count` elements of type `dtype` at the start of `memory`."""
        return memory[: count * dtype.itemsize].view(dtype)

    @staticmethod
    def copy(out, array):
        """out holds what array holds (the same memory as it is)."""
        if out is not array and not np.may_share_memory(out, array):
            out[...] = array

    @staticmethod
    def reduction(op):
        """The function (out, a, b) after which out holds a op b, element by element; avg adds."""
        return _maximum if op == "max" else _add

    @staticmethod
    def finishing(op, size):
        """The function (out) after which a reduction over `size` ranks is what `op` promises; None: it is already."""
        if op != "avg":
            return None

        def divide(out):
            np.divide(out, size, out)  # a multiplication by 1 / size would round twice

        return divide


def _maximum(out, a, b):
    np.maximum(a, b, out=out)


def _add(out, a, b):
    """out holds a + b.

    What is added into has just been read by another rank, so its cache lines are shared, and np.add waits for each of
    them; MPI's own loop is faster in that range of sizes, and for a sum its bits are the same.
    """
    if 32 * 1024 <= out.nbytes <= 512 * 1024:
        if np.may_share_memory(out, a):
            return MPI.SUM.Reduce_local(b, out)
        if np.may_share_memory(out, b):
            return MPI.SUM.Reduce_local(a, out)
    np.add(a, b, out)
    return None


def kind_of(array):
    """The kind of `array`; None if it is not an array of a known kind."""
    return NumPyArrays if type(array) in (np.ndarray, np.memmap) else None  # a masked array would lose its mask
