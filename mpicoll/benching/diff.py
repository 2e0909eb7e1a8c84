"""Two measurements compared, row by row: what has become slower, and by more than it varies. No MPI here."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from ..command import Parser, fail
from ..simulation.text import table
from ..simulation.units import digits
from .options import shown_type

KEY = ("collective", "by", "algorithm", "form", "in_place", "ranks", "dtype", "op", "root", "device", "nbytes")
WIDTHS = "llllrrrrl"


def parser() -> Parser:
    text = (
        "Compares two files that --json has written. A row has become slower (or faster) if its time differs by more "
        "than the threshold and the quartiles of the two do not overlap. Exit status: 1 if one has become slower."
    )
    made = Parser(prog="mpicoll.bench diff", description=text)
    made.add_argument("collective", metavar="diff", choices=("diff",), help=argparse.SUPPRESS)
    made.add_argument("before", metavar="A.jsonl", help="from before the change")
    made.add_argument("after", metavar="B.jsonl", help="from after it")
    made.add_argument("--threshold", metavar="PERCENT", type=float, default=5, help="smaller differences do not count")
    return made


def main(args: argparse.Namespace) -> int:
    """The exit status, after the comparison is printed."""
    try:
        before, after = read(args.before), read(args.after)
        both = [key for key in before if key in after]
        if not both:
            raise ValueError(f"{args.before} and {args.after} have no row in common")
    except ValueError as error:
        return fail("mpicoll.bench diff", 2, error)
    verdicts = {key: verdict(before[key], after[key], args.threshold / 100) for key in both}
    rows = [row(before[key], after[key], verdicts[key]) for key in both]
    header = ("collective", "algorithm", "place", "type", "bytes", "A us", "B us", "B / A", "")
    print("\n".join(table(header, rows, WIDTHS)))
    for path, only in ((args.before, before.keys() - after.keys()), (args.after, after.keys() - before.keys())):
        if only:
            print(f"{len(only)} rows are only in {path}")
    slower, faster = (list(verdicts.values()).count(word) for word in ("slower", "faster"))
    print(
        f"{len(both)} rows in both: {slower} slower, {faster} faster by more than {args.threshold:g} % and the spread"
    )
    return int(slower > 0)


def read(path: str) -> dict[tuple[Any, ...], dict[str, Any]]:
    """The rows of a file by what they measure.

    Raises:
        ValueError: it cannot be read, or is no such file.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from None
    rows = {}
    for number, line in enumerate(lines, 1):
        try:
            found = json.loads(line)
            if found["event"] == "row":
                rows[tuple(found[name] for name in KEY)] = found
        except (ValueError, KeyError, TypeError):
            raise ValueError(f"{path}, line {number}: no record of mpicoll.bench --json") from None
    return rows


def verdict(before: dict[str, Any], after: dict[str, Any], threshold: float) -> str:
    """slower, faster or nothing: by the slowest rank's times, their medians and quartiles."""
    a, b = before["slowest_us"], after["slowest_us"]
    if b["median"] > a["median"] * (1 + threshold) and b["q1"] > a["q3"]:
        return "slower"
    if a["median"] > b["median"] * (1 + threshold) and a["q1"] > b["q3"]:
        return "faster"
    return ""


def row(before: dict[str, Any], after: dict[str, Any], word: str) -> tuple[str, ...]:
    a, b = before["slowest_us"]["median"], after["slowest_us"]["median"]
    name = before["collective"] if before["form"] == "blocking" else f"{before['collective']} {before['form']}"
    kind = shown_type(before["dtype"]) + (f" {before['op']}" if before["op"] else "")
    place = "in place" if before["in_place"] else "out of place"
    return name, before["algorithm"], place, kind, f"{before['nbytes']:,}", digits(a), digits(b), f"{b / a:.2f}", word
