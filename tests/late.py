"""A stand-in for a GPU, on host memory: kernels and copies finish late, on streams, and an early touch is found.

A `Device` has a clock. Work is put on a stream; it begins when the stream's work before it has ended, and takes some
time of the clock. The clock is either ticks, one for each look at an event (so a test never waits in vain, and is the
same each time), or seconds, with copies and kernels at stated rates. Time alone ends work: nothing is done before
somebody looks.

    lazy     what work writes is there only when it has ended: who uses it before uses old data
    eager    what work reads is read when it is launched: who lets it start too early gives it old data

Both are what a real device may do, so tests run in both. Besides, whatever is launched or given to MPI while unfinished
work of another stream uses the same memory raises TooEarly.
"""

from __future__ import annotations

import contextlib
import random
import time

import numpy as np
from device_array import DeviceArray
from mpi4py import MPI

from mpicoll import arrays
from mpicoll.arrays import NumPyArrays
from mpicoll.progress.path import Path

POISON = 0xA5


class TooEarly(AssertionError):
    """Memory is used while other work on it has not ended."""


class Work:
    """Something on a stream: an event of the collectives."""

    def __init__(self, device, stream, name, effect, reads, writes, end):
        self.device, self.stream, self.name, self.effect = device, stream, name, effect
        self.reads, self.writes, self.end, self.done = reads, writes, end, False

    def Test(self):
        self.device.look()
        return self.done


class Pinned:
    """Host memory with nothing sensible in it."""

    @staticmethod
    def memory(nbytes):
        return np.full(nbytes, POISON, np.uint8)


class Device:
    """Streams, a clock, and a kind of arrays whose memory is here.

    Args:
        eager: see above.
        aware: whether MPI may be given this memory; None: every second piece of 64 bytes.
        seed: of the durations, below `ticks` each, if there are no rates.
        rates: bytes per second of each stream ("kernels", "outward", "inward"); then the clock is seconds.

    Attributes:
        log: (clock, what) of everything that began and ended, and of every named range, in order.
    """

    def __init__(self, eager=False, aware=False, seed=0, ticks=7, rates=None):
        self.eager, self.aware, self.durations, self.rates = eager, aware, ticks, rates
        self.random = random.Random(seed)
        self.ticks, self.busy, self.pending, self.log = 0, {}, [], []
        self.kind = LateArrays(self)
        self.Array = type("LateArray", (LateArray,), {"device": self})
        arrays.KINDS[self.Array] = lambda array: self.kind

    def now(self):
        return time.perf_counter() if self.rates else self.ticks

    def array(self, host):
        """A LateArray that holds what the NumPy array `host` holds."""
        return self.Array(np.array(host, order="C"))

    def look(self):
        """A look at an event: the clock goes on, and what has ended by then is done."""
        self.ticks += 1
        now = self.now()
        for work in sorted((work for work in self.pending if work.end <= now), key=lambda work: work.end):
            if not self.eager:
                work.effect()
            work.done = True
            self.pending.remove(work)
            self.log.append((work.end, f"{work.name} ended"))

    def launch(self, stream, name, effect, reads=(), writes=()):
        """`effect`, a function that reads and writes these host arrays, is on the stream."""
        self.touch(name, reads, writes, stream)
        nbytes = sum(array.nbytes for array in writes)
        took = nbytes / self.rates[stream] if self.rates else self.random.randrange(self.durations)
        begin = max(self.now(), self.busy.get(stream, 0))
        self.busy[stream] = begin + took
        self.log.append((begin, f"{name} began"))
        if self.eager:
            effect()
        work = Work(self, stream, name, effect, list(reads), list(writes), begin + took)
        self.pending.append(work)
        return work

    def touch(self, name, reads, writes, stream=None):
        """Nothing, or TooEarly if unfinished work, unless of this stream, uses the memory."""
        for work in self.pending:
            if work.stream != stream and (overlap(work.writes, [*reads, *writes]) or overlap(work.reads, writes)):
                raise TooEarly(f"{name} uses memory of {work.name}, which has not ended")

    def synchronise(self):
        """All work has ended."""
        while self.pending:
            self.look()


def overlap(some, others):
    return any(np.may_share_memory(a, b) for a in some for b in others)


class LateArray(DeviceArray):
    """An array on a Device, of a class of its own for each; `_host` is its memory, which only a test may look at.

    Kernels of the caller run on the stream "user"; what NumPy's functions write is in place at once, but not done.
    """

    device: Device

    @classmethod
    def launched(cls, reads, writes):
        cls.device.launch("user", "the caller's kernel", lambda: None, reads, writes)

    def fill_late(self, values):
        """A kernel writes `values`, one number or an array like this one."""
        host = self._host
        self.device.launch("user", "the caller's kernel", lambda: np.copyto(host, values), [], [host])

    def get(self):
        """The content, when all work has ended."""
        self.device.synchronise()
        return super().get()


def watch(monkeypatch):
    """What a round gives to MPI directly is free when it is posted, also in plans; the rest is copied, see `launch`."""
    step = Path._step

    def watched(path):
        going_on = step(path)
        for request, array, _, sending in path.made if going_on else ():
            if isinstance(request, MPI.Request) and isinstance(array, LateArray):
                memory = [array._host]
                array.device.touch("a message", *((memory, []) if sending else ([], memory)))
        return going_on

    monkeypatch.setattr(Path, "_step", watched)


class LateArrays:
    """The kind of a Device's arrays, in the interface of `mpicoll.arrays.Kind`."""

    name = "an array of the stand-in"
    pinned = Pinned

    def __init__(self, device):
        self.device = device

    def direct(self, array):
        aware = self.device.aware
        return array._host.ctypes.data // 64 % 2 == 0 if aware is None else aware

    def span(self, name):
        self.device.log.append((self.device.now(), name))
        return contextlib.nullcontext()

    def ready(self):
        return self.device.launch("user", "a mark on the caller's stream", lambda: None)

    def empty(self, shape, dtype):
        nbytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
        return self.device.Array(Pinned.memory(nbytes).view(dtype).reshape(shape))

    def writable(self, array):
        return array._host.flags.writeable

    def shares_memory(self, a, b):
        return np.may_share_memory(a._host, b._host)

    def same_memory(self, a, b):
        return NumPyArrays.same_memory(a._host, b._host)

    def as_bytes(self, array):
        return array._host.view(np.uint8)

    def memory(self, nbytes):
        return self.device.Array(Pinned.memory(nbytes))

    def view(self, memory, count, dtype):
        return self.device.Array(NumPyArrays.view(memory._host, count, dtype))

    def _kernel(self, name, function, out, *inputs):
        hosts = [array._host for array in inputs]
        return self.device.launch("kernels", name, lambda: function(out._host, *hosts), hosts, [out._host])

    def copy(self, out, array):
        return None if self.same_memory(out, array) else self._kernel("a copy", NumPyArrays.copy, out, array)

    def reduction(self, op):
        reduce = NumPyArrays.reduction(op)
        return lambda out, a, b: self._kernel("a reduction", reduce, out, a, b)

    def finishing(self, op, size):
        finish = NumPyArrays.finishing(op, size)
        return finish and (lambda out: self._kernel("a finish", finish, out))

    def to_host(self, host, array):
        source = array._host.view(np.uint8)
        return self.device.launch("outward", "a copy to the host", lambda: np.copyto(host, source), [source], [host])

    def to_device(self, array, host):
        target = array._host.view(np.uint8)[: len(host)]
        return self.device.launch("inward", "a copy to the device", lambda: np.copyto(target, host), [host], [target])
