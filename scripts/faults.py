"""What happens when a rank fails: python scripts/faults.py, with the mpirun beside this Python

Each fault is planted in rank 1 of a small job, again and again. A row of the table is: the fault, how often it was
tried, how often the job had not ended in time or not said what is wrong, the longest time from the fault to the end of
the job, and the line that named rank and cause. Exit status 1 if anything was not as promised.
"""

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from mpicoll.training import checkpoint

MPIRUN = Path(sys.executable).parent / "mpirun"
CRASH, STALL, LIMIT = 10.0, 2.0, 10.0  # s: from a crash to the end; MPICOLL_TIMEOUT where that must end it, and more

PLANT = """
import os, resource, signal, sys, time
import numpy as np
from mpicoll import train
from mpicoll.runtime import launched_rank
from mpicoll.training import checkpoint, loop
from mpicoll.training.ddp import DistributedDataParallel as DDP

def note():
    with open("fault", "w") as file:
        file.write(str(time.time()))

def plant(owner, name, number, act, rank=1):
    right, calls = getattr(owner, name), []
    def planted(*arguments, **options):
        calls.append(0)
        if launched_rank() == rank and len(calls) == number:
            note()
            act(*arguments)
        return right(*arguments, **options)
    setattr(owner, name, planted)

def wrong(*_):
    raise ValueError("this went wrong")

def kill(number):
    return lambda *_: os.kill(os.getpid(), number)
"""

COLLECTIVES = """
import time
import numpy as np
from mpi4py import MPI
import mpicoll
comm = mpicoll.Communicator(MPI.COMM_WORLD)
x = np.ones(500, "float32")
comm.allreduce(x)
if comm.rank == 1:
    with open("fault", "w") as file:
        file.write(str(time.time()))
"""

SMALL = ["--context", "6", "--width", "16", "--heads", "2", "--layers", "1", "--global-batch", "24", "--steps", "40"]
SAVED = ["--checkpoint", "run", "--checkpoint-every", "10"]
# The launchers' words: Open MPI names the rank, MPICH its process.
KILLED = r"process rank {} .*on\s+signal {}|PID \d+ RUNNING AT .*(.|\n)*STRING: \w+ \(signal {}\)"


class Fault(NamedTuple):
    """What goes wrong, and what must come of it.

    Attributes:
        program: what all ranks run; `arguments` are the trainer's, where it trains.
        told: a pattern that the job's output must match.
        bound: seconds from the fault to the end of the job.
        environment: of the job.
        ranks: how many.
        flags: of mpirun.
        status: whether the exit status may be this one.
        before: the arguments of a training run in the folder before.
        check: of the folder, afterwards; raises if what was promised is lost.
        only: the MPI for which it is; None: all.
    """

    program: str
    told: str
    arguments: list[str] | None = SMALL
    bound: float = CRASH
    environment: Mapping[str, str] = MappingProxyType({})
    ranks: int = 2
    flags: tuple[str, ...] = ()
    status: Callable[[int], bool] = bool
    before: list[str] | None = None
    check: Callable[[Path], object] = lambda folder: None
    only: str | None = None


def saved(step):
    """A check: the last checkpoint is whole, and of this step."""

    def check(folder):
        _, about = checkpoint.load(checkpoint.find(folder / "run"))
        if about["step"] != step:
            raise ValueError(f"the last checkpoint is of step {about['step']}, not {step}")

    return check


def alone(name, number, act):
    """A program that does something when a method of the model is called the so manieth time on rank 1."""
    return f"plant(DDP, {name!r}, {number}, {act})"


FULL = """
def full(arrays, path, *_):
    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, resource.RLIM_INFINITY))
plant(checkpoint, "save_file", 2, full, rank=0)
"""
HALF = """
def half(arrays, path, metadata=None):
    with open(path, "wb") as file:
        file.write(b"half of it")
    os.kill(os.getpid(), signal.SIGKILL)
plant(checkpoint, "save_file", 2, half, rank=0)
"""
SKIP = """
if launched_rank() == 1:
    note()
    loop.range = lambda first, steps: [step for step in range(first, steps) if step != 4]
"""
TRUNCATED = """
if launched_rank() == 0:
    os.truncate(checkpoint.find("run"), 1000)
    note()
"""
DOCTOR = """
from mpicoll.doctoring import software
from mpicoll import doctor
right = software.code
software.code = lambda: right() | ({"jobs.py": "another"} if launched_rank() == 1 else {})
note()
sys.exit(doctor.main([]))
"""
DEBUG, TIMEOUT = {"MPICOLL_DEBUG": "1"}, {"MPICOLL_TIMEOUT": f"{STALL:g}"}
DIFFER = r"the ranks of this communicator call different collectives:(.|\n)*?rank 1 +call \d+ .*"
ORDER = "y = np.ones(1000, 'float32')\nfor z in (x, y)[:: 1 - 2 * comm.rank]: comm.allreduce(z)"

FAULTS: dict[str, Fault] = {
    "raise in forward": Fault(alone("forward", 5, "wrong"), r"\[rank 1\] ValueError: this went wrong"),
    "raise between launch and finish": Fault(alone("finish", 5, "wrong"), r"\[rank 1\] ValueError: this went wrong"),
    "sys.exit(3)": Fault(alone("forward", 5, "lambda *_: sys.exit(3)"), r"\[rank 1\] SystemExit: 3"),
    "return from training": Fault(
        alone("forward", 5, "lambda *_: sys.exit(0)"), "rank 1 has ended its program or closed the communicator"
    ),
    "no memory": Fault(alone("forward", 5, "lambda *_: np.empty(1 << 50)"), r"\[rank 1\] .*MemoryError: .*"),
    "SIGKILL in backward": Fault(alone("_after_layer", 9, "kill(signal.SIGKILL)"), KILLED.format(1, 9, 9)),
    "SIGTERM": Fault(alone("_after_layer", 9, "kill(signal.SIGTERM)"), KILLED.format(1, 15, 15)),
    "SIGSTOP": Fault(
        alone("_after_layer", 9, "kill(signal.SIGSTOP)"),
        "rank 1 does not answer: it is stopped, or dead",
        bound=STALL + LIMIT,
        environment=TIMEOUT,
    ),
    "one rank skips a step": Fault(
        SKIP, r"in a circle: ranks 0, 1 wait for each other.*", bound=STALL + LIMIT, environment=TIMEOUT
    ),
    "one rank skips a step, MPICOLL_DEBUG": Fault(SKIP, DIFFER, environment=DEBUG),
    "another model": Fault(
        "if launched_rank() == 1:\n    note()\n    sys.argv += ['--layers', '2']",
        r"the models differ between ranks: rank\(s\) 1 differ from rank 0.*",
    ),
    "different code, with the doctor": Fault(DOCTOR, r"broken +code .*", []),
    "different counts": Fault("comm.allreduce(x[: 500 - comm.rank])", r"CollectiveError: .* rank \d.*", None),
    # Open MPI 5.0 copies a longer message, if in one go, past the end of the shorter buffer before it says so.
    "different counts, long": Fault(
        "x = np.ones(100_000 + comm.rank)\ncomm.allreduce(x)",
        r"CollectiveError: .* rank \d.*|process rank \d .*on\s+signal \d+.*",
        None,
    ),
    "different counts, MPICOLL_DEBUG": Fault("comm.allreduce(x[: 500 - comm.rank])", DIFFER, None, environment=DEBUG),
    "different dtypes": Fault(
        "comm.allreduce(x.astype(['float32', 'float64'][comm.rank]))", r"CollectiveError: .* rank \d.*", None
    ),
    "different dtypes of as many bytes, MPICOLL_DEBUG": Fault(
        "comm.allreduce(x.view(['float32', 'int32'][comm.rank]))", DIFFER, None, environment=DEBUG
    ),
    "different order": Fault(ORDER, r"CollectiveError: .* rank \d.*", None),
    "different order, MPICOLL_DEBUG": Fault(ORDER, DIFFER, None, environment=DEBUG),
    "disk full while saving": Fault(
        FULL, "checkpoint run/step-00000020.safetensors cannot be written: .*", SMALL + SAVED, check=saved(10)
    ),
    "SIGKILL while saving": Fault(HALF, KILLED.format(0, 9, 9), SMALL + SAVED, check=saved(10)),
    "truncated checkpoint": Fault(
        TRUNCATED,
        r"checkpoint run/step-00000040.safetensors is truncated, .*; the one before it: --resume run/step-00000030.*",
        ["--resume", "run"],
        before=[*SMALL, *SAVED],
        check=lambda folder: checkpoint.load(checkpoint.path_of(folder / "run", 30)),
    ),
    "SIGTERM to one rank, with --checkpoint": Fault(
        alone("forward", 15, "kill(signal.SIGTERM)"),
        r"ended by SIGTERM to rank 1 after step 1\d of 40; to go on: --resume run",
        SMALL + SAVED,
        status=lambda status: status == 0,
        check=lambda folder: checkpoint.load(checkpoint.find(folder / "run")),
    ),
    "SIGKILL of two of four, --elastic": Fault(
        alone("_after_layer", 9, "kill(signal.SIGKILL)")
        + "\nplant(DDP, '_after_layer', 99, kill(signal.SIGKILL), rank=0)",
        r"lost rank 1 after step \d+: 3 go on after 0.*(.|\n)*lost rank 0 after step \d+: 2 go on after 0.*(.|\n)*"
        r"exactly the formula(.|\n)*replicas +2, bit-identical.*",
        [*SMALL, "--elastic"],
        ranks=4,
        flags=("--with-ft", "ulfm"),
        status=lambda status: status == 0,
        only="Open MPI",
    ),
}


def mpi():
    """The name of the MPI of this environment's mpirun."""
    version = subprocess.run([MPIRUN, "--version"], capture_output=True, text=True, check=True).stdout
    return "Open MPI" if "Open MPI" in version else "MPICH"


class Outcome(NamedTuple):
    """Of one try: whether the job ended, how long after the fault, in s, what it said, what is wrong, if anything."""

    ended: bool
    seconds: float
    output: str
    wrong: str


def attempt(fault: Fault, vendor: str) -> Outcome:
    """A try of the fault, in a folder of its own."""
    with tempfile.TemporaryDirectory() as name:
        return attempt_in(fault, vendor, Path(name))


def attempt_in(fault, vendor, folder):
    """A try of the fault, in this folder."""
    program = COLLECTIVES + fault.program
    if fault.arguments is not None:
        program = f"{PLANT}{fault.program}\nsys.exit(train.main({fault.arguments!r} + sys.argv[1:]))"
    many = ["--oversubscribe", "--mca", "mpi_yield_when_idle", "1"] if vendor == "Open MPI" else []
    as_root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"} if os.getuid() == 0 else {}
    command = [MPIRUN, *many, *fault.flags, "-np", str(fault.ranks), sys.executable, "-c", program]
    environment = {**os.environ, **as_root, **fault.environment}
    if fault.before:
        subprocess.run(
            [sys.executable, "-m", "mpicoll.train", *fault.before], cwd=folder, capture_output=True, check=True
        )
    job: Any = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=folder, env=environment,
        start_new_session=True, errors="replace",
    )  # fmt: skip
    try:
        output, _ = job.communicate(timeout=60)
        ended = True
    except subprocess.TimeoutExpired:
        os.killpg(job.pid, signal.SIGKILL)
        output, _ = job.communicate()
        ended = False
    now, began = time.time(), folder / "fault"
    seconds = now - float(began.read_text()) if began.exists() else float("nan")
    return Outcome(ended, seconds, output, verdict(fault, folder, ended, seconds, output, job.returncode))


def verdict(fault, folder, ended, seconds, output, status):
    """What is not as promised, in words; empty if all is."""
    if not ended:
        return "it hung"
    if not seconds <= fault.bound:
        return f"it ended after {seconds:.1f} s, later than {fault.bound:g}, or the fault did not happen"
    if not fault.status(status):
        return f"the exit status is {status}"
    if not re.search(fault.told, output):
        return f"nothing says {fault.told!r}"
    try:
        fault.check(folder)
    except ValueError as error:
        return str(error)
    return ""


def message(fault, output):
    """What the output says, first and last line."""
    lines = [line.strip() for line in re.search(fault.told, output)[0].splitlines()]
    return " ... ".join(dict.fromkeys([lines[0], lines[-1]]))


def main():
    """The exit status, after the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10, help="of each fault")
    parser.add_argument("--only", default="", help="faults with this in their names")
    args = parser.parse_args()
    vendor, right = mpi(), True
    print(f"{'fault':<50}{'runs':>5}{'hangs':>6}{'wrong':>6}{'longest':>9}  message, under {vendor}", flush=True)
    for name, fault in FAULTS.items():
        if args.only in name and fault.only in (None, vendor):
            outcomes = [attempt(fault, vendor) for _ in range(args.runs)]
            bad = [outcome for outcome in outcomes if outcome.wrong]
            hangs, longest = (
                sum(not outcome.ended for outcome in outcomes),
                max(outcome.seconds for outcome in outcomes),
            )
            words = bad[0].wrong if bad else message(fault, outcomes[-1].output)
            print(f"{name:<50}{args.runs:>5}{hangs:>6}{len(bad):>6}{longest:>7.1f} s  {words}", flush=True)
            if bad:
                print(bad[0].output[-3000:], flush=True)
            right = right and not bad
    return 0 if right else 1


if __name__ == "__main__":
    raise SystemExit(main())
