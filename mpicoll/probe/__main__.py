"""Says whether MPI can send from GPU memory and receive into it: python -m mpicoll.probe

Two processes are started that try it; a file keeps what they found. Under mpirun, rank 0 prints.

Exit status: 0 if it could be told (with --memory host: if it works); 1 if not; 2 if an argument is wrong.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Sequence

from .. import gpu, runtime
from ..command import Parser
from . import cuda_aware, look, verdict
from .guard import find_launcher


def main(argv: Sequence[str] | None = None) -> int:
    """The exit status; rank 0 alone prints and fails, for a launcher ends all ranks as soon as one has failed."""
    if not runtime.launched_rank():  # type: ignore[no-untyped-call]
        return tell(argv)
    with (
        contextlib.suppress(SystemExit),
        open(os.devnull, "w") as nowhere,
        contextlib.redirect_stdout(nowhere),
        contextlib.redirect_stderr(nowhere),
    ):
        tell(argv)
    return 0


def tell(argv: Sequence[str] | None) -> int:
    """The exit status, and what was found is printed."""
    parser = Parser(prog="mpicoll.probe", description=__doc__)
    parser.add_argument("--fresh", action="store_true", help="try again, whatever was found before")
    parser.add_argument("--memory", choices=("device", "host"), default="device", help="host: shows that trying works")
    args = parser.parse_args(argv)
    if args.memory == "device" and "MPICOLL_CUDA" in os.environ:
        try:
            print(cuda_aware())
        except ValueError as error:
            parser.error(str(error))
        return 0
    finding, file = look(args.memory, args.fresh)
    works = "works" if finding.passed else "does not work"
    count, why = gpu.find()
    rows = {
        "verdict": verdict(finding) if args.memory == "device" else f"host memory {works}: {finding.why}",
        "MPI": library(),
        "launcher": find_launcher() or "none",
        "GPU": f"{count}, the first is {gpu.name(0)}" if count else f"none: {why}",
        "cache": f"{file}; --fresh tries again" if file else "none",
    }
    for name, value in rows.items():
        print(f"{name:8}  {value}")
    if finding.output:
        print("\nThe end of what the child printed:", finding.output, sep="\n")
    told = finding.passed if args.memory == "host" else finding.passed is not None
    return 0 if told else 1


def library() -> str:
    """The MPI that Python uses, as it names itself; it is loaded, not started."""
    import mpi4py

    mpi4py.rc.initialize = False
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        return f"none: {error}"
    return " ".join(re.split("[,\n]", MPI.Get_library_version())[0].split())


if __name__ == "__main__":
    sys.exit(main())
