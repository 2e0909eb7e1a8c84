"""The paper's and the lecture's experiments on this machine: mpirun -np 2 python -m mpicoll.experiments overlap

Each is a table, and a picture if asked for, with what the paper (Li et al., VLDB 2020) or the lecture says beside it:

{experiments}
    all           every one of these, in this order

Variants of the trainer (mpicoll.train; see there for what they are) train in turn, again and again; figures are medians
over steps, quartiles in brackets. Each takes about half a minute on two ranks; more ranks than cores take longer.
On a cluster it is the same command; scripts/lab/net.sh 2 scripts/lab/mpirun.sh makes one on this machine and starts it.

Exit status: 0 if all is right; 2 if an argument is wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any

from . import launch, plot, runtime
from .command import Parser, fail, open_results
from .experimenting import EXPERIMENTS

PROGRAM = "mpicoll.experiments"


def main(argv: Sequence[str] | None = None) -> int:
    """The exit status; failure is rank 0's to report, the others' status is 0 (see command.py)."""
    args = parse(argv)
    limit: Any = runtime.limit_threads
    limit()
    from .training import devices

    found: Any = devices.find(args.device)  # type: ignore[no-untyped-call]
    try:
        world = launch.start(PROGRAM, found.where)
    except ValueError as error:
        return fail(PROGRAM, 2, error)
    if world.size == 1:
        command = f"mpirun -np 2 python -m mpicoll.experiments {args.experiment}"
        return fail(PROGRAM, 2, f"one rank has nobody to talk to: nothing was measured; start {command}")
    with contextlib.ExitStack() as stack:
        try:
            place, device = devices.agree(world, args.device, found)  # type: ignore[no-untyped-call]
            output = open_results(world, stack, args.json, "--svg", args.svg)
            run(world, args, output, place, device, stack)
        except ValueError as error:
            return fail(PROGRAM, 2, error)
    return 0


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The arguments; help and errors are printed by rank 0 only, and before MPI starts."""
    names = "\n".join(f"    {name:<14}{about}" for name, about in EXPERIMENTS.items())
    parser = Parser(prog=PROGRAM, description=(__doc__ or "").format(experiments=names))
    add = parser.add_argument
    add("experiment", choices=(*EXPERIMENTS, "all"), metavar="NAME", help="one of the above")
    add("--svg", metavar="FILE", help="the picture, .svg or .png; of `all` a panel for each")
    add("--json", metavar="FILE", help="a line on each experiment and on each row of its table")
    add("--device", choices=("auto", "cpu", "gpu"), default="auto", help="auto: GPUs if every rank has one")
    add("--quick", action="store_true", help="a small model and one repetition: only to see that it runs")
    args = parser.parse_args(argv)
    if args.svg:
        try:
            plot.check_name("--svg", args.svg)
        except ValueError as error:
            parser.error(str(error))
    return args


def run(
    world: Any, args: argparse.Namespace, output: Any, place: Any, device: str, stack: contextlib.ExitStack
) -> None:
    """The experiments have run, and rank 0 has told what they found. Collective."""
    from .communicator import Communicator
    from .experimenting import outcome
    from .experimenting.runs import Setting

    make: Any = Communicator
    comm = stack.enter_context(make(world))
    around = surroundings(world, device, args)
    if world.rank == 0:
        print("\n".join(f"{name:<8} {value}" for name, value in around.items()), flush=True)
    done = []
    for name in EXPERIMENTS if args.experiment == "all" else [args.experiment]:
        module = importlib.import_module(f".experimenting.{name.replace('-', '_')}", __package__)
        with contextlib.ExitStack() as own:  # one experiment's memory is free before the next
            found = module.run(Setting(world, comm, place, device, own, args.quick))
        if world.rank:
            continue
        print(
            f"\n{name}: {EXPERIMENTS[name]}\n{found.model}\nmpicoll.train {found.trainer}\n\n{outcome.table(found)}",
            flush=True,
        )
        if output:
            records = [
                {
                    "event": "experiment",
                    "model": found.model,
                    "trainer": found.trainer,
                    "source": found.source,
                    **around,
                }
            ]
            records += [{"event": "row", **outcome.for_json(row)} for row in found.rows]
            output.writelines(json.dumps({"experiment": name, **record}) + "\n" for record in records)
        done.append(found)
    if args.svg and world.rank == 0:
        outcome.save(done, f"{around['ranks']}, {around['mpi']}", args.svg)


def surroundings(world: Any, device: str, args: argparse.Namespace) -> dict[str, str]:
    """What the numbers depend on, in words. Collective."""
    from mpi4py import MPI

    hosts = Counter(world.allgather(MPI.Get_processor_name()))
    vendor, numbers = MPI.get_vendor()
    where = next(iter(hosts))
    if len(hosts) > 1:
        where = f"{len(hosts)} hosts: " + ", ".join(f"{n} on {host}" for host, n in hosts.items())
    threads = os.environ["OPENBLAS_NUM_THREADS"]
    return {
        "command": f"mpirun -np {world.size} python -m mpicoll.experiments {' '.join(sys.argv[1:])}",
        "ranks": f"{world.size} ranks on {where}",
        "mpi": f"{vendor} {'.'.join(map(str, numbers))}",
        "device": f"{device}; {len(os.sched_getaffinity(0))} cores for rank 0, {threads} BLAS threads per rank",
        **({"quick": "only to see that it runs: the figures mean nothing"} if args.quick else {}),
    }


if __name__ == "__main__":
    raise SystemExit(main())
