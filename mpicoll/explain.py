"""Explains the collectives to a reader who looks rather than reads: figures, times, proofs. No MPI is started.

    python -m mpicoll.explain allreduce ring -n 4                               step by step: who sends what to whom
    python -m mpicoll.explain broadcast ring -n 8 --segments 1,2,4,8,16,64      why a ring cuts messages
    python -m mpicoll.explain allreduce -n 48 --bytes 1M --links ndr            every algorithm's time, and the choice
    python -m mpicoll.explain crossover --links ndr                             the fastest, over bytes and ranks
    python -m mpicoll.explain verify                                            all algorithms proven, in minutes
    python -m mpicoll.explain lecture                                           where each idea of the lecture is

Sizes are decimal, as in the lesson: 1M is 1,000,000 bytes, 1MiB is 1,048,576. Links are named as in mpicoll/links.py
(ndr, nvlink4, nvlink4x8+ndr, 5us/20GB/s); "host" and "device" are what the library itself takes.

Exit status: 0 if all is right; 1 if an algorithm is wrong; 2 if an argument is wrong.
"""

from __future__ import annotations

import argparse
import inspect
import os
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from . import plot
from .algorithms import COLLECTIVES, FAMILIES
from .command import Parser, fail, of
from .explaining import choice, crossover, drawing, figure, lecture, segments, text, verify
from .selection import forced
from .simulation.units import parse_bytes, parse_whole
from .tuning import chosen_file
from .world import Fault

LISTED = 64  # ranks of a figure
ROOTED = ("broadcast", "reduce", "gather", "scatter")


def main(argv: Sequence[str] | None = None) -> int:
    """The exit status, after what was asked for is printed."""
    args = parse(argv)
    try:
        if getattr(args, "svg", None):
            plot.check("--svg", args.svg)  # before anything is printed
        return int(args.answer(args))
    except Fault as fault:
        return fail("mpicoll.explain", 1, f"{args.command} {args.algorithm} is wrong: {type(fault).__name__}: {fault}")
    except BrokenPipeError:  # `| head` has seen enough; nothing is left to be written when Python ends
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (ValueError, OSError) as error:
        return fail(f"mpicoll.explain {args.command}", 2, error)


def numbers(text: str) -> list[int]:
    """Whole numbers with commas between them."""
    return [parse_whole(part) for part in text.split(",")]


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The arguments; `answer` is the function that answers."""
    parser = Parser(prog="mpicoll.explain", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="WHAT")

    def command(name: str, answer: Callable[[argparse.Namespace], int], purpose: str) -> Callable[..., Any]:
        sub = commands.add_parser(name, help=purpose, description=purpose)
        sub.set_defaults(answer=answer, algorithm=None)
        return sub.add_argument

    for name in COLLECTIVES:
        add = command(name, collective, f"its algorithms: {', '.join(FAMILIES[name])}")
        add("algorithm", nargs="?", default=argparse.SUPPRESS, help="its figure; none: the time of each algorithm")
        add("-n", type=of(parse_whole), default=4, metavar="RANKS", help="ranks")
        if name != "barrier":
            add("--bytes", type=of(parse_bytes), help="of the whole buffer, such as 1M; None: 1M where it matters")
        add("--links", help="between the ranks, such as ndr; None: as tuned, or host; in a figure none")
        add("--svg", metavar="FILE", help="the figure as a picture, .svg or .png")
        if name in ROOTED:
            add("--root", type=int, default=0, help="the root")
        for option, kind, what in OPTIONS:
            if any(option in inspect.signature(function).parameters for function in FAMILIES[name].values()):
                add(f"--{option}", type=of(kind), metavar=what[0], help=what[1])
    add = command("crossover", winners, "which algorithm is the fastest, over bytes and ranks, and where it changes")
    add("collective", nargs="?", choices=COLLECTIVES, default="allreduce", help="of this collective")
    add("--links", help="between the ranks; None: host")
    add("--svg", metavar="FILE", help="the table as a picture, .svg or .png")
    add = command("verify", proofs, "run every algorithm in a world of ranks without MPI, and prove what it does")
    add("--max-size", type=of(parse_whole), default=64, metavar="RANKS", help="the most ranks")
    command("lecture", index, "where each idea of the lecture lives, how to see it run, and its test")
    return parser.parse_args(argv)


def truth(text: str) -> bool:
    if text not in ("yes", "no"):
        raise ValueError(f"{text!r} is neither yes nor no")
    return text == "yes"


OPTIONS: list[tuple[str, Callable[[str], Any], tuple[str, str]]] = [
    ("segments", numbers, ("S,S,...", "of a pipeline: one number for a figure, several for their times")),
    ("parts", parse_whole, ("K", "of a pipeline of levels")),
    ("channels", parse_whole, ("K", "parts of the buffer side by side")),
    ("nodes", numbers, ("M,M,...", "ranks of each node")),
    ("aggregate", parse_whole, ("A", "chunks in a message, at most")),
    ("near", truth, ("yes", "near ranks first")),
]


def collective(args: argparse.Namespace) -> int:
    """A figure, a sweep over segments, or the time of every algorithm."""
    if not 0 <= getattr(args, "root", 0) < args.n:
        raise ValueError(f"--root is {args.root}; of {args.n} ranks it is one from 0 to {args.n - 1}")
    given = {name: value for name, _, _ in OPTIONS if (value := getattr(args, name, None)) is not None}
    width = shutil.get_terminal_size().columns
    asked = getattr(args, "bytes", None)
    nbytes = 0 if args.command == "barrier" else asked or 1_000_000
    wiring = choice.wiring(args.links, args.n) if args.links else None
    if args.algorithm is None:
        for name in [*given, *(["root"] if getattr(args, "root", 0) else []), *(["svg"] if args.svg else [])]:
            raise ValueError(f"--{name} needs an algorithm; there are {', '.join(FAMILIES[args.command])}")
        print(choice.choice_text(args.command, nbytes, args.n, wiring or choice.own(args.n), width))
        return 0
    forced(args.command, args.algorithm)
    if len(given.get("segments", [])) > 1:
        for name in [*(name for name in given if name != "segments"), *(["root"] if getattr(args, "root", 0) else [])]:
            raise ValueError(f"--{name} is for a figure, which has one number of --segments; here there are several")
        swept = segments.sweep(args.command, args.algorithm, args.n, given["segments"], asked, wiring)
        if args.svg:
            segments.draw_sweep(swept, args.svg)
        print(segments.sweep_text(swept, width))
        return 0
    if args.n > LISTED:
        raise ValueError(f"-n is {args.n}; a figure has at most {LISTED} ranks")
    if asked and not wiring:
        raise ValueError("--bytes: times depend on --links, too, such as ndr or host; without, a figure has no times")
    options = settings(args.command, args.algorithm, args.n, given)
    drawn = figure.draw(args.command, args.algorithm, args.n, getattr(args, "root", 0), **options)
    if args.svg:
        drawing.draw_figure(drawn, args.svg)
    print(text.figure_text(drawn, width))
    if wiring:
        print(choice.time_text(drawn, nbytes, wiring))
    return 0


def settings(collective: str, algorithm: str, size: int, given: dict[str, Any]) -> dict[str, Any]:
    """The algorithm's options; ranks are in two nodes if nothing is said.

    Raises:
        ValueError: the algorithm has no such option, or the nodes do not have all ranks.
    """
    takes = inspect.signature(FAMILIES[collective][algorithm]).parameters
    for name in given:
        if name not in takes:
            others = [other for other, f in FAMILIES[collective].items() if name in inspect.signature(f).parameters]
            raise ValueError(f"{algorithm} has no --{name}; of this collective {', '.join(others)} have")
    options = {**given, **({"segments": given["segments"][0]} if "segments" in given else {})}
    if "nodes" in takes:
        lengths = given.get("nodes", [-(-size // 2)])
        lengths = lengths * (size // lengths[0]) + [size % lengths[0]] if len(lengths) == 1 else lengths
        if sum(lengths) != size:
            raise ValueError(f"--nodes: {','.join(map(str, lengths))} are {sum(lengths)} ranks, -n is {size}")
        options["nodes"] = [node for node, length in enumerate(lengths) for _ in range(length)]
    return options


def winners(args: argparse.Namespace) -> int:
    wiring = choice.wiring(args.links or "host", max(crossover.RANKS))
    if args.links is None and (table := chosen_file()):
        wiring = wiring._replace(text=f"{wiring.text}; by the model alone, {table} is not looked at")
    if wiring.topology:
        raise ValueError(f"--links: {args.links} has several levels; here all ranks are joined by one link")
    found = crossover.crossover(args.collective, wiring.links)
    if args.svg:
        crossover.draw_crossover(found, wiring, args.svg)
    print(crossover.crossover_text(found, wiring, shutil.get_terminal_size().columns))
    return 0


def proofs(args: argparse.Namespace) -> int:
    """1 if anything is wrong."""
    from tqdm import tqdm

    start, problems = time.perf_counter(), 0
    print(verify.HEADING, "", verify.columns(args.max_size), sep="\n")
    pairs = [(collective, name) for collective, names in FAMILIES.items() for name in names]
    for collective, name in tqdm(pairs, unit="algorithm", leave=False, disable=None):
        verdict = verify.verify(collective, name, args.max_size)
        problems += verdict.problem is not None
        tqdm.write(str(verdict), file=sys.stdout)
    seconds = time.perf_counter() - start
    print(f"\n{len(pairs) - problems} of {len(pairs)} algorithms proven in {seconds:.0f} s; {problems} wrong")
    return int(problems > 0)


def index(args: argparse.Namespace) -> int:
    print(lecture.index_text(shutil.get_terminal_size().columns))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
