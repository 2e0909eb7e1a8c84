"""Whether the MPI underneath can send from GPU memory and receive into it: python -m mpicoll.probe

That depends on the MPI, on the libraries below it, on the driver and on the machine, so no version string tells it; and
an MPI that cannot do it crashes, hangs or delivers garbage. So two child processes try it, under guard and once per
node, and a file keeps what they found. MPICOLL_CUDA=aware or MPICOLL_CUDA=staged overrides it.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import importlib.util
import json
import os
import platform
import stat
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from .. import gpu
from .guard import PACKAGE, Finding, find_launcher, scrub, try_memory


class Verdict(NamedTuple):
    """Whether messages may be sent from and received into device memory, and why, in a sentence."""

    aware: bool
    why: str

    def __str__(self) -> str:
        return f"{'CUDA-aware' if self.aware else 'staged through host memory'}: {self.why}"


@functools.cache
def cuda_aware() -> Verdict:
    """The user's word, else what the probe has found or now finds on this node.

    Raises:
        ValueError: MPICOLL_CUDA is neither "aware" nor "staged".
    """
    chosen = os.environ.get("MPICOLL_CUDA")
    if chosen is None:
        return verdict(look("device")[0])
    if chosen not in ("aware", "staged"):
        raise ValueError(f"MPICOLL_CUDA is {chosen!r}; it can be 'aware' or 'staged', or unset: then it is tried out")
    return Verdict(chosen == "aware", f"MPICOLL_CUDA is {chosen!r}")


def verdict(finding: Finding) -> Verdict:
    """What the finding of device memory means for messages."""
    if finding.passed or not gpu.find()[0]:
        return Verdict(finding.passed is True, finding.why)
    return Verdict(False, f"{finding.why}; MPICOLL_CUDA=aware overrides this")


def look(memory: str, fresh: bool = False) -> tuple[Finding, Path | None]:
    """What the probe finds for this kind of memory, "device" or "host", and the file that keeps it, if one does.

    With `fresh` nothing counts that was found before this call; processes that ask together still try once.
    """
    since = time.time() if fresh else 0.0
    if memory == "device":
        count, why = gpu.find()
        if not count:
            return Finding(False, f"there is no GPU: {why}"), None
    launcher = find_launcher()
    if launcher is None:
        return Finding(None, "there is no mpiexec or mpirun, neither beside Python nor on PATH"), None
    ask = functools.partial(try_memory, launcher, memory)
    try:
        file = _folder() / f"probe-{_key(launcher, memory)}.json"
        return cached(file, ask, since), file
    except OSError:  # the folder cannot be used: every process tries for itself
        return ask(), None


def _folder() -> Path:
    """A folder that is this user's alone.

    Raises:
        OSError: there is none.
    """
    folder = Path(tempfile.gettempdir(), f"mpicoll-{os.getuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise PermissionError(f"{folder} is not a folder of this user alone")
    return folder


_DECIDE = ("CUDA_", "FI_", "LD_LIBRARY_PATH", "LD_PRELOAD", "MPI4PY_", "MPICH_", "MPIR_CVAR_", "OMPI_MCA_", "UCX_")

_WHICH = "CUDA_VISIBLE_DEVICES"  # each rank of a node may have its own; the answer is the node's


def _key(launcher: str, memory: str) -> str:
    """A name for all that can change the answer."""
    module = importlib.util.find_spec("mpi4py.MPI")  # does not start MPI
    files = [launcher, str(module and module.origin), *map(str, sorted((PACKAGE / "probe").glob("*.py")))]
    facts: list[object] = [memory, platform.node()]
    facts += [(name, os.stat(name).st_mtime_ns if os.path.exists(name) else None) for name in files]
    facts += sorted(item for item in scrub(os.environ).items() if item[0].startswith(_DECIDE) and item[0] != _WHICH)
    if memory == "device":
        import cupy

        facts += [cupy.__version__, cupy.cuda.runtime.driverGetVersion(), gpu.name(0)]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]


def cached(file: Path, ask: Callable[[], Finding], since: float = 0.0) -> Finding:
    """What the file says, else what `ask` finds, which the file says from then on; of several processes one asks.

    A file that is missing, damaged or older than `since`, in seconds since the epoch, says nothing.

    Raises:
        OSError: the file cannot be locked; nothing was asked.
    """
    with file.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with contextlib.suppress(OSError, ValueError, TypeError):
            if file.stat().st_mtime >= since:
                return Finding(**json.loads(file.read_text()))
        finding = ask()
        with contextlib.suppress(OSError):  # a full disk, say: then the next one asks again
            new = file.with_suffix(".new")
            new.write_text(json.dumps(finding._asdict()))
            new.replace(file)
        return finding
