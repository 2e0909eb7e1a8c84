"""What the checks ran on."""

import os
import platform
import re
from pathlib import Path

import numpy as np
from mpi4py import MPI

import mpicoll


def mapped(name):
    """The files that are loaded as libraries and have this in their name."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return sorted({line.split()[-1] for line in lines if name in line.rpartition("/")[2]})


def ucx():
    import ctypes

    files = mapped("libucp.so")
    if not files:
        return "not loaded"
    version = ctypes.CDLL(files[0]).ucp_get_version_string
    version.restype = ctypes.c_char_p
    return f"{version().decode()} ({files[0]}; {'with' if mapped('libuct_cuda') else 'without'} CUDA)"


def check(run):
    rows = {
        "machine": f"{platform.machine()}, {len(os.sched_getaffinity(0))} cores, Linux {platform.release()}",
        "Python": f"{platform.python_version()}, NumPy {np.__version__}, mpicoll {mpicoll.__file__}",
        "MPI": " ".join(re.split("[,\n]", MPI.Get_library_version())[0].split()),
        "UCX": ucx(),
    }
    if run.device == "gpu":
        cupy, runtime = run.maker.cupy, run.maker.runtime
        facts = runtime.getDeviceProperties(run.maker.number)
        free, total = runtime.memGetInfo()
        driver = Path("/proc/driver/nvidia/version")
        kernel = re.search(r"\d+\.\d+\.\d+", driver.read_text()) if driver.exists() else None
        rows["CUDA"] = (
            f"driver {kernel.group() if kernel else '?'} with CUDA {runtime.driverGetVersion()}, "
            f"runtime {runtime.runtimeGetVersion()}, CuPy {cupy.__version__}"
        )
        rows["GPU"] = (
            f"{runtime.getDeviceCount()}, {facts['name'].decode()}, {facts['multiProcessorCount']} multiprocessors, "
            f"{free / 2**30:.1f} of {total / 2**30:.1f} GiB free"
        )
    run.say("machine", **rows)
    for name, value in rows.items():
        run.say("note", text=f"{name}: {value}")
