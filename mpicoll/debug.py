"""MPICOLL_DEBUG=1: ranks compare every collective before it starts, and host memory to be written holds NaN first.

Ranks that call different things, or the same in another order, would match the wrong messages: they would wait for
ever, or end with wrong numbers. With the variable set (rank 0's counts, when a communicator is made) each collective,
and each start of a plan, first exchanges what it is; if ranks disagree, all of them raise the same error, with a table,
and nothing has been sent. That costs a message to every rank and back, and calls wait for one another; without the
variable it costs nothing.
"""

import functools
import hashlib
import inspect
import json
import os
import sys
from pathlib import Path

import numpy as np

from . import foreign
from .progress.plan import Plan

VARIABLE = "MPICOLL_DEBUG"
LENGTH = 400  # characters of what a rank tells; of longer lists of counts the end is a hash
NAMED = ("root", "counts", "algorithm")  # told as name=value
OWN = {str(Path(__file__).parent / f"{name}.py") for name in ("collectives", "communicator", "debug")}


class CollectiveMismatch(RuntimeError):
    """The ranks of a communicator are about to do different things."""


def wanted():
    """Whether the environment asks for it.

    Raises:
        ValueError: the variable has another value than "", "0" and "1".
    """
    text = os.environ.get(VARIABLE, "")
    if text not in ("", "0", "1"):
        raise ValueError(f"{VARIABLE} is {text!r}; it is 1, or 0")
    return text == "1"


class Checks:
    """What a communicator does before each of its collectives.

    Args:
        exchange: a blocking all-gather of bytes among the communicator's ranks, which is not checked itself.
    """

    def __init__(self, rank, exchange):
        self.rank, self._exchange, self.number = rank, exchange, 0

    def __call__(self, job, make, arguments, form=""):
        """All ranks are about to do the same, and what the collective is to write holds no number.

        Args:
            job: of the call.
            make, arguments: the job's function and what the user passed to it.
            form: "nonblocking" or the like; a blocking call may match any other, a plan or an i-form may not.

        Raises:
            CollectiveMismatch: on all ranks, with a table of what each is about to do.
        """
        self.compare({"collective": job.name, "form": form, **_told(job, make, arguments)})
        self.poison(job, make, arguments)

    def poison(self, job, make, arguments):
        """What the collective is to write on this rank, in host memory, is all ones: NaN, and -1."""
        first, result = foreign.native(arguments[0]), foreign.native(job.result)
        if type(result) is not np.ndarray:
            return
        if job.name == "broadcast":
            untouched = _told(job, make, arguments).get("root") == str(self.rank)
        else:
            untouched = type(first) is np.ndarray and np.may_share_memory(first, result)
        if not untouched:
            result.reshape(-1).view(np.uint8).fill(0xFF)

    def compare(self, told):
        """All ranks have told the same, of the call with the same number.

        Args:
            told: name → value of what is compared.

        Raises:
            CollectiveMismatch: they have not.
        """
        self.number += 1
        words = " ".join(f"{name}={value}" if name in NAMED else str(value) for name, value in told.items() if value)
        if len(words) > LENGTH:
            rest = hashlib.sha256(words.encode()).hexdigest()[:16]
            words = f"{words[: LENGTH - 30]}... ({rest})"
        text = json.dumps([f"call {self.number}", words, _caller()[-LENGTH:]]).encode()
        line = np.zeros(4 * LENGTH, np.uint8)
        line[: len(text)] = np.frombuffer(text, np.uint8)
        everyone = [json.loads(bytes(row).rstrip(b"\0")) for row in self._exchange(line).reshape(-1, len(line))]
        if any(said != everyone[0][:2] for *said, _ in everyone):
            raise CollectiveMismatch(table(everyone))


class CheckedPlan(Plan):
    """A plan whose starts are compared over the ranks; `poison` is called before each."""

    __slots__ = ("_checks", "_poison")

    def __init__(self, checks, poison, *rest):
        self._checks, self._poison = checks, poison
        super().__init__(*rest)

    def start(self):
        job = self._call.job
        which = f"(its tags begin at {self._call.tag})"
        self._checks.compare({"collective": job.name, "form": "start of a plan", **_kind(job), "which": which})
        if not self.active:
            self._poison()
        super().start()


def table(everyone):
    """The ranks grouped by what they are about to do, most first.

    Args:
        everyone: of each rank (number of the call, what it is, the caller's line).
    """
    groups = {}
    for rank, (number, what, line) in enumerate(everyone):
        groups.setdefault((number, what), []).append((rank, line))
    rows = []
    for said, members in sorted(groups.items(), key=lambda item: -len(item[1])):
        ranks = ", ".join(str(rank) for rank, _ in members)
        rows.append(
            (f"rank{'s' * (len(members) > 1)} {ranks}", *said, ", ".join(sorted({line for _, line in members})))
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)
    return "the ranks of this communicator call different collectives:\n  " + "\n  ".join(lines)


def _told(job, make, arguments):
    """What must be alike on all ranks, by name; in an all-to-all with counts ranks have their own."""
    found = _kind(job)
    names = list(inspect.signature(make).parameters)[1 + 2 :]  # after the communicator and the two arrays
    given = dict(zip(names, arguments[2:], strict=False))
    for name in ("root", "counts", "algorithm"):
        value = given.get(name)
        if value is not None and job.name != "alltoallv":
            found[name] = str(list(map(int, value)) if name == "counts" else _name(value))
    return found


def _kind(job):
    """What of that every job knows."""
    found = {}
    if job.name != "barrier":
        found["dtype"] = str(job.dtype)
        if job.name != "alltoallv":
            found["count"] = f"x {job.nbytes // job.dtype.itemsize}"
    if job.name in ("reduce", "allreduce", "reduce_scatter"):
        found["op"] = job.op
    return found


def _name(value):
    """A function's name and the options bound to it, not where it is in memory; what is no function stays itself."""
    if isinstance(value, functools.partial):
        return f"{_name(value.func)}({', '.join(f'{name}={option}' for name, option in value.keywords.items())})"
    return getattr(value, "__name__", value)


def _caller():
    """Where the user's program called: file and line."""
    frame = sys._getframe(1)
    while frame.f_back and frame.f_code.co_filename in OWN:
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
