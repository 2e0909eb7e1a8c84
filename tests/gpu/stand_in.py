"""What the checks need of a device: here tests/late.py's, in host memory. A GPU has the same methods, see on_gpu.py."""

import contextlib
from types import SimpleNamespace

import late
import numpy as np

from mpicoll import runtime


class StandIn:
    """The device of late.py; its clock is ticks, so times mean nothing."""

    def __init__(self):
        late.watch(SimpleNamespace(setattr=setattr))
        self.device = late.Device(seed=runtime.launched_rank())
        self.kind = self.device.kind = _PartlyShared(self.device)
        self.synchronise = self.device.synchronise
        self.array = self.fresh = self.device.array

    def start(self, way):
        self.way(way)

    def way(self, name):
        self.device.aware = name == "aware"

    def host(self, array):
        self.synchronise()
        return array._host.copy()

    def copy(self, out, array):
        out, source = out._host, array._host
        self.device.launch("user", "the caller's copy", lambda: np.copyto(out, source), [source], [out])

    def spin(self, seconds):
        for _ in range(3):
            self.device.launch("user", "the caller's kernel", lambda: None)

    stream = staticmethod(contextlib.nullcontext)

    def unshared(self, host):
        array = self.array(host)
        self.kind.unshared.append(array._host)
        yield "unshared", array

    def pinned(self, nbytes):
        return self.kind.pinned.memory(nbytes)

    def to_host(self, host, array):
        np.copyto(host, self.host(array).view(np.uint8))

    def to_device(self, array, host):
        self.synchronise()
        np.copyto(array._host, host.view(array.dtype))

    def buffer(self, array):
        self.synchronise()
        return array._host

    @staticmethod
    def used():
        return 0


class _PartlyShared(late.LateArrays):
    """The stand-in's arrays, some of which MPI must not be given."""

    def __init__(self, device):
        super().__init__(device)
        self.unshared = []

    def direct(self, array):
        return super().direct(array) and not late.overlap(self.unshared, [array._host])

    def as_bytes(self, array):
        assert not late.overlap(self.unshared, [array._host]), "MPI was given memory that it cannot use"
        return super().as_bytes(array)
