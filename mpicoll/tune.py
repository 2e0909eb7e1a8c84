"""Measures this machine, so that `auto` takes the fastest algorithm: mpirun -n 4 python -m mpicoll.tune

It measures the links between the ranks (on one node and between nodes, short and long messages), the local reduction,
the segments of pipelines and every algorithm over sizes from 8 B to 8 MiB, of float32 in host memory, and writes what
won where into a table. Every Communicator with as many ranks on as many nodes then follows it; with other ranks the
cost model decides, with the links measured here. Tuning again with other ranks adds to the table, with the same ranks
it replaces what is there, so several MPIs need a file each. Nothing else should run on the machine meanwhile.

The table that is used is the user's own (~/.config/mpicoll/tuning.json) or the one that MPICOLL_TUNING names, as rank 0
finds it; MPICOLL_TUNING=none: none. It is for programs without device arrays. MPICOLL_ALGORITHM and `algorithm=` still
decide first. `python -m mpicoll.explain` shows which rule decides.

--guidelines measures nothing for the table: it checks whether what auto takes now is consistent, that is, whether no
collective is slower than others that together do the same. What is not is printed; it is no error.

Exit status: 0 if all is right; 1 if the table cannot be written; 2 if an argument or the table that is there is wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from . import launch, runtime
from .algorithms import COLLECTIVES
from .command import Parser, fail
from .selection import VARIABLE as ALGORITHM
from .tuning import VARIABLE, chosen_file, default_file, layout, parse, read, save, this_mpi

PROGRAM = "mpicoll.tune"


def main(argv: Sequence[str] | None = None) -> int:
    """The exit status, which is rank 0's to tell (see command.py)."""
    args = parse_arguments(argv)
    runtime.limit_threads()  # type: ignore[no-untyped-call]
    try:
        world = launch.start(PROGRAM)
    except ValueError as error:
        return fail(PROGRAM, 2, error)
    from .communicator import Communicator

    problem = None
    if world.size == 1:
        problem = "one rank has nothing to measure: mpirun -n 4 python -m mpicoll.tune"
    elif not args.guidelines:
        os.environ |= {VARIABLE: "none", ALGORITHM: ""}  # rank 0's are everybody's: nothing is to be limited or decided
        problem = world.bcast(usable(args.output) if world.rank == 0 else None)
    if problem:
        return fail(PROGRAM, 2, problem)
    try:
        with Communicator(world) as comm:  # type: ignore[no-untyped-call]
            return (check if args.guidelines else tune)(comm, args)
    except ValueError as error:  # on all ranks: a table or MPICOLL_ALGORITHM that cannot be used
        return fail(PROGRAM, 2, error)


def usable(file: Path) -> str | None:
    """Why no entry can be added to the file, known before a minute is spent; None if one can."""
    try:
        if file.exists():
            parse(read(file), str(file))
        file.parent.mkdir(parents=True, exist_ok=True)
    except (ValueError, OSError) as error:
        return f"{error} (-o FILE names another file)"
    return (
        None if os.access(file.parent, os.W_OK) else f"{file.parent} cannot be written to; -o FILE names another file"
    )


def tune(comm: Any, args: argparse.Namespace) -> int:
    """Everything is measured and rank 0 has written the table."""
    from .tuner import run, summary

    key = layout(comm.nodes)
    if comm.rank == 0:
        print(f"{comm.size} ranks, layout {key}, {this_mpi()}", flush=True)
    with progress_bar(comm, args.seconds) as (watch, tell):
        found = run.measure(watch, comm, args.collectives or COLLECTIVES, args.seconds, tell)
    if comm.rank:
        return 0
    print(*summary.summary(found), sep="\n")
    try:
        save(args.output, key, found.entry)
    except (ValueError, OSError) as error:
        return fail(PROGRAM, 1, f"{args.output}: {error}")
    used = "" if args.used else f"; {VARIABLE}={args.output} makes auto use it"
    print(f"\n{args.output} has layout {key}{used}", flush=True)
    return 0


def check(comm: Any, args: argparse.Namespace) -> int:
    """The guidelines are checked, and printed."""
    from .tuner import guidelines, run

    with progress_bar(comm, args.seconds) as (watch, tell):
        lines = run.check_guidelines(watch, comm, args.seconds, tell)
    if comm.rank == 0:
        print(f"{comm.size} ranks, {comm.rules.source if comm.rules else 'no table: by the cost model'}", "", sep="\n")
        print(*guidelines.text(lines), sep="\n", flush=True)
    return 0


@contextlib.contextmanager
def progress_bar(comm: Any, seconds: float) -> Iterator[tuple[Any, Callable[[str], None]]]:
    """A watch, and what shows on rank 0 how far it has gone and what is measured now."""
    from tqdm import tqdm

    from .tuner.timing import Stopwatch

    watch = Stopwatch(comm)
    form = "{percentage:3.0f}%|{bar:20}| {elapsed} of about {total_fmt} s  {desc}"
    with tqdm(total=round(seconds), bar_format=form, leave=False, disable=comm.rank != 0) as bar:

        def tell(what: str) -> None:
            bar.n = min(round(seconds), round(watch.now, 1))
            bar.set_description_str(what)

        yield watch, tell


def seconds(text: str) -> float:
    try:
        limit = float(text)
    except ValueError:
        limit = 0
    if not 1 <= limit < 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from 1 up, such as 60")
    return limit


def some_collectives(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(text.split(",")))
    for name in names:
        if name not in COLLECTIVES:
            raise argparse.ArgumentTypeError(f"{name!r} is no collective; there are {', '.join(COLLECTIVES)}")
    return names


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """The arguments; help and errors are printed by rank 0 only, and before MPI starts."""
    parser = Parser(prog=PROGRAM, description=__doc__)
    add = parser.add_argument
    used = chosen_file() or default_file()
    add("-o", "--output", metavar="FILE", type=Path, default=used, help="the table")
    add("--seconds", type=seconds, default=60.0, help="about as long it takes")
    add("--collectives", type=some_collectives, metavar="A,B,...", help="what is tuned; None: all collectives")
    add("--guidelines", action="store_true", help="check what auto takes now, instead")
    args = parser.parse_args(argv)
    args.used = args.output == used and os.environ.get(VARIABLE) != "none"
    return args


if __name__ == "__main__":
    raise SystemExit(main())
