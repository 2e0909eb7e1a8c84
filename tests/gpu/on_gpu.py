"""What the checks need of a device: here a GPU, by way of CuPy. The stand-in has the same methods, see stand_in.py.

The caller's stream is the one that is current when a method is called. Arrays are made and looked at when all work
has ended; `copy` and `spin` are only queued.
"""

import os

import numpy as np

from mpicoll import gpu, runtime

_SPIN = r"""
extern "C" __global__ void spin(long long nanoseconds) {
    long long start, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
    do {
        __nanosleep(1000);
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while (now - start < nanoseconds);
}
"""


class Gpu:
    """The GPU of this process. To be made before MPI starts; `start` comes afterwards.

    Attributes:
        kind: of its arrays.
    """

    def __init__(self):
        self.number = gpu.choose(runtime.launched_local_rank())
        import cupy

        self.cupy, self.cuda, self.runtime = cupy, cupy.cuda, cupy.cuda.runtime
        self._spin = cupy.RawKernel(_SPIN, "spin")

    def start(self, way):
        os.environ["MPICOLL_CUDA"] = way
        from mpicoll import arrays

        self.kind = arrays.kind_of(self.array(np.zeros(1)))

    def way(self, name):
        """Messages go this way from now on: "aware" or "staged"."""
        self.kind.aware = name == "aware"

    def synchronise(self):
        self.runtime.deviceSynchronize()

    def array(self, host):
        """An array that holds what the NumPy array `host` holds."""
        content = self.cupy.asarray(np.ascontiguousarray(host).reshape(-1).view(np.uint8))
        self.synchronise()
        return content.view(host.dtype).reshape(host.shape)

    def host(self, array):
        """The content, as a NumPy array."""
        self.synchronise()
        return array.reshape(-1).view(np.uint8).get().view(array.dtype).reshape(array.shape)

    def copy(self, out, array):
        if out.nbytes:
            stream = self.cuda.get_current_stream().ptr
            direction = self.runtime.memcpyDeviceToDevice
            self.runtime.memcpyAsync(out.data.ptr, array.data.ptr, out.nbytes, direction, stream)

    def spin(self, seconds):
        """The caller's stream is busy for so long."""
        self._spin((1,), (1,), (np.int64(seconds * 1e9),))

    def stream(self):
        """Inside, another stream is the caller's."""
        return self.cuda.Stream(non_blocking=True)

    def fresh(self, host):
        """An array in memory of its own, outside CuPy's pool: it is given back to the driver with the array."""
        return self._in_memory(self.cuda.MemoryPointer(self.cuda.Memory(host.nbytes), 0), host)

    def unshared(self, host):
        """(name, array) for each kind of memory that MPI cannot be given."""
        yield "cudaMallocAsync", self._in_memory(self.cuda.malloc_async(host.nbytes), host)
        yield "managed", self._in_memory(self.cuda.malloc_managed(host.nbytes), host)

    def _in_memory(self, pointer, host):
        array = self.cupy.ndarray(host.shape, host.dtype, pointer)
        self.copy(array, self.array(host))
        self.synchronise()
        return array

    def pinned(self, nbytes):
        return self.kind.pinned.memory(nbytes)[:nbytes]

    def to_host(self, host, array):
        self._transfer(host.ctypes.data, array.data.ptr, array.nbytes)

    def to_device(self, array, host):
        self._transfer(array.data.ptr, host.ctypes.data, array.nbytes)

    def _transfer(self, out, source, nbytes):
        stream = self.cuda.get_current_stream()
        self.runtime.memcpyAsync(out, source, nbytes, self.runtime.memcpyDefault, stream.ptr)
        stream.synchronize()

    def buffer(self, array):
        """The memory, as mpi4py takes it."""
        return self.kind.as_bytes(array)

    def used(self):
        """Bytes of the device's memory that are taken, by all processes together."""
        free, total = self.runtime.memGetInfo()
        return total - free
