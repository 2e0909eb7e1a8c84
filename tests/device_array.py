"""A stand-in for CuPy's arrays, on host memory: it refuses what CuPy refuses, and counts where the host would wait.

It knows what training uses and nothing else, so that it cannot hide something that CuPy lacks: what is not here raises
by name. What is here was looked up in CuPy 14.2; where CuPy does more than is safe to rely on (it takes NumPy's arrays
and lists as indices, for instance), this refuses.
"""

import traceback

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

UFUNCS = {
    np.add, np.subtract, np.multiply, np.divide, np.negative, np.maximum, np.minimum, np.exp, np.log, np.sqrt, np.tanh,
    np.matmul, np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal, np.isfinite,
}  # fmt: skip

REFUSED = {
    "add.at": "adds floats in whatever order the threads come, so no two runs are alike",
    "add.reduceat": "is the difference of running sums in CuPy: other numbers, and one NaN spreads",
    "put": "waits for the device, to find indices that are out of range",
    "repeat": "waits for the device, to know how many there are",
    "vecdot": "is not in CuPy",
}


class NotThere(NotImplementedError, AttributeError):
    """Training has no need of it yet; look up what CuPy does, then add it."""


def not_there(name):
    return NotThere(f"{name} {REFUSED.get(name, 'is not in the stand-in: look up what CuPy does, then add it')}")


class DeviceArray(NDArrayOperatorsMixin):
    """An array on a device that is not there.

    Attributes:
        _host: its memory, a NumPy array: for whoever plays the device or the MPI that reads its memory.
        host_waits: how often the host would have waited for the device, over all such arrays of the program.
        waited_at: the line that waited, for each of these.
    """

    host_waits = 0
    waited_at = []  # noqa: RUF012 one for all

    def __init__(self, host):
        self._host = host

    @classmethod
    def launched(cls, reads, writes):
        """Called after each kernel or copy, when its result is in place, with the host memories it read and wrote."""

    @classmethod
    def _made(cls, host, reads):
        """The new array that a kernel has made; CuPy has arrays where NumPy has scalars."""
        made = cls(np.asarray(host))
        cls.launched(reads, [made._host])
        return made

    @staticmethod
    def _wait():
        DeviceArray.host_waits += 1
        frame = next(f for f in reversed(traceback.extract_stack()) if f.filename != __file__ and f.name != "get")
        DeviceArray.waited_at.append(f"{frame.filename}:{frame.lineno} {frame.line}")

    def __getattr__(self, name):
        raise AttributeError(name) if name.startswith("__") else not_there(f"ndarray.{name}")

    # what says nothing about the content

    shape, dtype, ndim, size, nbytes, itemsize, strides = (
        property(lambda self, name=name: getattr(self._host, name))
        for name in ("shape", "dtype", "ndim", "size", "nbytes", "itemsize", "strides")
    )
    flags = property(lambda self: self._host.flags)
    T = property(lambda self: type(self)(self._host.T))

    def __len__(self):
        return len(self._host)

    def __iter__(self):
        return (self[i] for i in range(len(self)))

    def reshape(self, *shape):
        host = self._host.reshape(*shape)
        return type(self)(host) if np.may_share_memory(host, self._host) else self._made(host, [self._host])

    def transpose(self, *axes):
        return type(self)(self._host.transpose(*axes))

    def swapaxes(self, one, other):
        return type(self)(self._host.swapaxes(one, other))

    def view(self, dtype):
        return type(self)(self._host.view(dtype))

    # what waits

    def __array__(self, *arguments, **options):
        raise TypeError(
            "Implicit conversion to a NumPy array is not allowed. Please use `.get()` to construct a NumPy array "
            "explicitly."
        )

    def get(self):
        """A copy in host memory."""
        self._wait()
        return self._host.copy()

    def item(self):
        return self.get().item()

    def tolist(self):
        return self.get().tolist()

    def __bool__(self):
        return bool(self.get())

    def __int__(self):
        return int(self.get())

    def __float__(self):
        return float(self.get())

    def __repr__(self):
        return f"Device{self.get()!r}"

    # kernels

    def fill(self, value):
        self._host.fill(_operand(value))
        self.launched([], [self._host])

    def copy(self):
        return self._made(self._host.copy(), [self._host])

    def astype(self, dtype):
        return self._made(self._host.astype(dtype), [self._host])

    def argsort(self, axis=-1, kind=None):
        if kind not in (None, "stable"):
            raise ValueError("kind can only be None or 'stable'")
        return self._made(self._host.argsort(axis, kind="stable"), [self._host])

    def sum(self, axis=None, dtype=None, keepdims=False):
        return self._made(self._host.sum(axis, dtype, keepdims=keepdims), [self._host])

    def argmax(self, axis=None):
        return self._made(self._host.argmax(axis), [self._host])

    def max(self, axis=None, keepdims=False):
        return self._made(self._host.max(axis, keepdims=keepdims), [self._host])

    def all(self):
        return self._made(self._host.all(), [self._host])

    def mean(self, axis=None, keepdims=False):
        return self._made(self._host.mean(axis, keepdims=keepdims), [self._host])

    def _index(self, key):
        """The index for the host's memory, and the memory that it reads; () if it makes a view."""
        parts = list(key if isinstance(key, tuple) else (key,))
        reads = []
        for i, part in enumerate(parts):
            if isinstance(part, DeviceArray):
                if part.dtype.kind == "b":
                    self._wait()  # for the number of True
                reads.append(part._host)
                parts[i] = part._host
            elif not (part is None or part is Ellipsis or isinstance(part, slice | int | np.integer)):
                raise TypeError(f"an array on a device has an index of type {type(part).__name__}; pass one like it")
        if not reads and Ellipsis not in parts:
            parts.append(...)  # then also one element is a view
        return tuple(parts), reads

    def __getitem__(self, key):
        key, reads = self._index(key)
        return self._made(self._host[key], [self._host, *reads]) if reads else type(self)(self._host[key])

    def __setitem__(self, key, value):
        key, reads = self._index(key)
        host, value = self._host if reads else self._host[key], _operand(value)
        if isinstance(value, np.ndarray):
            if value.__array_interface__ == host.__array_interface__:  # x[i] += y ends with x[i] = x[i]
                return
            reads.append(value)
        self._host[key] = value
        self.launched(reads, [host])

    # NumPy's functions

    def __array_ufunc__(self, ufunc, method, *inputs, out=(), **options):
        name = ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}"
        if method != "__call__" or ufunc not in UFUNCS or options:
            raise not_there(" ".join([name, *options]))
        operands, (target,) = [_operand(x) for x in inputs], [_operand(x) for x in out] or (None,)
        reads = [x for x in operands if isinstance(x, np.ndarray)]
        if not out:
            return self._made(ufunc(*operands), reads)
        ufunc(*operands, out=target)
        self.launched(reads, [target])
        return out[0]

    def __array_function__(self, function, types, arguments, options):
        if function not in FUNCTIONS:
            raise not_there(function.__name__)
        return FUNCTIONS[function](type(self), *arguments, **options)


def _operand(x):
    """What a kernel is given for x.

    Raises:
        TypeError: it is neither a number nor an array on the device.
    """
    if isinstance(x, DeviceArray):
        return x._host
    if isinstance(x, bool | int | float | complex | np.generic):
        return x
    raise TypeError(f"Unsupported type {type(x)}")


# what training calls with an array, or with like=: the class, then the function's arguments


def _asarray(cls, x, order=None):
    if isinstance(x, DeviceArray):
        return x if order is None or x.flags.c_contiguous else x.copy()
    return cls._made(np.array(x, order="C"), [])


def _like(fill):
    def like(cls, prototype, dtype=None, shape=None):
        if shape is not None and (not isinstance(shape, tuple) or not shape):
            raise not_there(f"shape {shape!r}")  # CuPy 14.2 takes 0 and () for none
        host = np.zeros_like(prototype._host, dtype, shape=shape)
        if fill is not None:
            return cls._made(host, [])
        host.fill(np.frombuffer(b"\xa5" * host.itemsize, host.dtype)[0])  # no kernel, and nothing sensible
        return cls(host)

    return like


def _waiting(function):
    def wait(cls, x, **options):
        cls._wait()
        results = function(x._host, **options)
        several = isinstance(results, tuple)
        made = [cls._made(result, [x._host]) for result in (results if several else [results])]
        return tuple(made) if several else made[0]

    return wait


FUNCTIONS = {
    np.asarray: _asarray,
    np.arange: lambda cls, *arguments: cls._made(np.arange(*arguments), []),
    np.empty_like: _like(None),
    np.zeros_like: _like(0),
    np.stack: lambda cls, arrays: cls._made(np.stack([_operand(a) for a in arrays]), [a._host for a in arrays]),
    np.array_split: lambda cls, x, parts: [cls(part) for part in np.array_split(x._host, parts)],
    np.lib.stride_tricks.sliding_window_view: lambda cls, x, length: cls(
        np.lib.stride_tricks.sliding_window_view(x._host, length)
    ),
    np.unique: _waiting(np.unique),
    np.nonzero: _waiting(np.nonzero),
    np.flatnonzero: _waiting(np.flatnonzero),
}


def asarray(array):
    """A DeviceArray that holds what the NumPy array holds: what `cupy.asarray` is for CuPy."""
    return _asarray(DeviceArray, array)
