"""What the commands have in common: how arguments are read, and how it is told that something is wrong.

Under a launcher rank 0 alone prints and fails: all ranks are ended as soon as one has failed, and what rank 0 has to
say would be lost.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from . import plot, runtime


class Formatter(argparse.ArgumentDefaultsHelpFormatter, argparse.RawDescriptionHelpFormatter):
    """Shows defaults and keeps the lines of the description."""


class Parser(argparse.ArgumentParser):
    """Errors are one line, and end the program with status 2."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"formatter_class": Formatter, **options})

    def error(self, message: str) -> NoReturn:
        self.exit(fail(self.prog, 2, f"{message} (--help lists the arguments)"))

    def print_help(self, file: Any = None) -> None:
        if not rank():
            super().print_help(file)


def rank() -> int:
    """This process's rank, known before MPI starts."""
    return int(runtime.launched_rank())  # type: ignore[no-untyped-call]


def fail(command: str, status: int, message: object, own: int | None = None) -> int:
    """`status` on rank 0, which has said why, and 0 elsewhere; `own` is this rank, None: as it was started."""
    if rank() if own is None else own:
        return 0
    print(f"{command}: error: {message}", file=sys.stderr, flush=True)
    return status


def of(function: Callable[..., Any], *rest: Any) -> Callable[[str], Any]:
    """The type of an argument that `function` reads; its ValueError is what the user is told."""

    def read(text: str) -> Any:
        try:
            return function(text, *rest)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return read


def open_results(world: Any, stack: contextlib.ExitStack, records: str | None, option: str, picture: str | None) -> Any:
    """Rank 0's open file of --json, None elsewhere and without; the picture of `option` can be written. Collective.

    Args:
        stack: closes the file.
        records, picture: the files' names; None: not wanted.

    Raises:
        ValueError: on every rank; one cannot be written.
    """
    output = problem = None
    if world.rank == 0:
        try:
            if picture:
                plot.check(option, picture)
            if records:
                output = stack.enter_context(open(records, "w", buffering=1, encoding="utf-8"))  # noqa: SIM115 see stack
        except OSError as error:
            problem = f"--json {records}: {error.strerror}"
        except ValueError as error:
            problem = str(error)
    if problem := world.bcast(problem):
        raise ValueError(problem)
    return output
