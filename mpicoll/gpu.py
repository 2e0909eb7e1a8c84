"""The GPUs of this process, by way of CuPy: which there are, which one is used, named ranges. No MPI here.

A GPU is chosen before MPI starts and before anything is allocated: CUDA-aware MPIs look at it when they start.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any

from numpy.typing import NDArray


def find() -> tuple[int, str]:
    """How many GPUs this process can use, and why there is none ("" if there is one). Never raises."""
    try:
        import cupy
    except ImportError as error:
        return 0, f"CuPy cannot be imported ({error}); pip install 'mpicoll[cuda13]' or 'mpicoll[cuda12]' brings it"
    try:
        count = int(cupy.cuda.runtime.getDeviceCount())
    except cupy.cuda.runtime.CUDARuntimeError as error:
        count, why = 0, str(error)
    else:
        why = "" if count else "CUDA finds none"
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
    return count, why if hidden is None or count else f"{why}; CUDA_VISIBLE_DEVICES is {hidden!r}"


def in_use() -> bool:
    """Whether the program has loaded CuPy, and there is a GPU."""
    return "cupy" in sys.modules and find()[0] > 0


def current() -> int | None:
    """The number of this thread's current device; None if no GPU is in use."""
    return int(sys.modules["cupy"].cuda.runtime.getDevice()) if in_use() else None


def use(device: int | None) -> None:
    """It is this thread's current device, which each thread has for itself; None does nothing."""
    if device is not None:
        sys.modules["cupy"].cuda.Device(device).use()


def choose(local_rank: int) -> int:
    """The number of this process's GPU, local_rank modulo their number: it is the current device and has a context.

    Raises:
        RuntimeError: there is no GPU.
    """
    import cupy

    count, why = find()
    if not count:
        raise RuntimeError(f"there is no GPU: {why}")
    device = local_rank % count
    cupy.cuda.Device(device).use()
    cupy.cuda.runtime.free(0)  # makes the context
    return device


def name(device: int) -> str:
    """What the maker calls GPU number `device`."""
    import cupy

    return str(cupy.cuda.runtime.getDeviceProperties(device)["name"].decode())


def address() -> str:
    """The address of this thread's current device on the PCI bus, such as 0000:1b:00.0; "" if no GPU is in use."""
    device = current()
    return "" if device is None else str(sys.modules["cupy"].cuda.Device(device).pci_bus_id)


def place(array: NDArray[Any]) -> Any:
    """A CuPy array on the current device that holds what `array` holds."""
    import cupy

    return cupy.asarray(array)


class _Range:
    """An NVTX range of this thread, from entering to leaving."""

    __slots__ = ("name", "nvtx")

    def __init__(self, name: str, nvtx: Any) -> None:
        self.name, self.nvtx = name, nvtx

    def __enter__(self) -> None:
        self.nvtx.RangePush(self.name)

    def __exit__(self, *what: object) -> None:
        self.nvtx.RangePop()


def span(name: str) -> contextlib.AbstractContextManager[None]:
    """Inside, profilers such as Nsight Systems show a range of this name, if the program has loaded CuPy."""
    cupy = sys.modules.get("cupy")
    return contextlib.nullcontext() if cupy is None else _Range(name, cupy.cuda.nvtx)
