"""What is known of one size, one contender and one place: the record that --json writes and the table shows."""

from __future__ import annotations

import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
from mpi4py import MPI

from .. import cost
from .cases import Case
from .contenders import Ours
from .options import shown_type
from .timing import Found

SCHEMA = 1


def environment(world: MPI.Intracomm) -> dict[str, Any]:
    """What the numbers depend on, as far as a program can tell; `hosts` has the host of every rank. Collective."""
    vendor, numbers = MPI.get_vendor()
    try:
        own = version("mpicoll")
    except PackageNotFoundError:
        own = "not installed"
    return {
        "mpicoll": own,
        "mpi": f"{vendor} {'.'.join(map(str, numbers))}",
        "python": platform.python_version(),
        "numpy": np.__version__,
        "machine": platform.machine(),
        "cpus": len(os.sched_getaffinity(0)),
        "variables": {name: value for name, value in sorted(os.environ.items()) if name.startswith("MPICOLL_")},
        "command": sys.argv[1:],
        "pids": world.allgather(os.getpid()),
        "hosts": world.allgather(MPI.Get_processor_name()),
    }


def record(case: Case, in_place: bool, who: Any, found: Found, args: Any, around: dict[str, Any]) -> dict[str, Any]:
    """One record; times in microseconds, bandwidths in GB/s (1e9 bytes). `args` are bench.parse's."""
    over = [lambda times: times[0], lambda times: times.mean(0), lambda times: times.min(0), lambda times: times.max(0)]
    seconds = float(np.median(over[args.average](found.throughput)))
    low, middle, high = (float(seconds) * 1e6 for seconds in np.percentile(found.slowest, [25, 50, 75]))
    algbw = case.nbytes / seconds / 1e9
    predicted = who.predicted(case)
    label = who.label(case)
    return {
        "event": "row",
        "schema": SCHEMA,
        "collective": case.collective,
        "nbytes": case.nbytes,
        "count": case.shown_count,
        "dtype": case.dtype.name,
        "type": shown_type(case.dtype.name),
        "op": case.op,
        "root": case.root,
        "ranks": case.size,
        "by": who.name,
        "form": args.form,
        "device": args.device,
        "algorithm": label,
        "chosen": isinstance(who, Ours) and who.algorithm is None,
        "in_place": in_place,
        "time_us": seconds * 1e6,
        "slowest_us": {"q1": low, "median": middle, "q3": high},
        "latency_us": {
            "min": float(found.single.min()) * 1e6,
            "median": float(np.median(found.single)) * 1e6,
            "p99": float(np.percentile(found.single, 99)) * 1e6,
        },
        "algbw": algbw,
        "busbw": algbw * float(cost.busbw_factor(case.collective, case.size)),
        "predicted_us": None if predicted is None else predicted * 1e6,
        "repetitions": found.throughput.shape[1],
        "wrong": found.wrong,
        "first_wrong": found.first,
        "ratio": {},
        "environment": around,
        "hosts": around["hosts"],
    }
