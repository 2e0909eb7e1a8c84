"""What an experiment found, as a table and as a picture."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from .. import plot

WIDTH = 120  # of the lines
INK = "#444444"
TIMES = {
    "step_ms": ("step (ms)", ".1f"),
    "exposed_comm_ms": ("exposed (ms)", ".1f"),
    "comm_ms": ("in flight (ms)", ".1f"),
}
LEGEND = "exposed: the time a step waits for communication; in flight: from a bucket's launch until it was seen done"


class Outcome(NamedTuple):
    """What an experiment found.

    Attributes:
        model: what was trained, in words.
        trainer: the arguments of mpicoll.train, of the first variant.
        columns: by the key of the values: the head of the column, and the format of the number.
        rows: values by key; a value is a number, a text, a spread, or None where there is none.
        found: sentences on these numbers.
        source: what the paper or the lecture says.
        draw: draws it into matplotlib's axes.
    """

    name: str
    model: str
    trainer: str
    columns: dict[str, tuple[str, str]]
    rows: list[dict[str, Any]]
    found: list[str]
    source: str
    draw: Callable[[Any], None]


def cell(value: Any, form: str) -> str:
    """The value; of a spread the median and, in brackets, the quartiles."""
    if value is None:
        return "-"
    if isinstance(value, dict):
        return f"{value['median']:{form}} ({value['q1']:{form}} to {value['q3']:{form}})"
    return str(value) if isinstance(value, str) else f"{value:{form}}"


def for_json(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row as JSON can hold it: a number that is not finite is null."""
    held: dict[str, Any] = {}
    for key, value in row.items():
        lost = isinstance(value, float) and not math.isfinite(value)
        held[key] = for_json(value) if isinstance(value, dict) else None if lost else value
    return held


def table(outcome: Outcome) -> str:
    """Heads, rows, and what is said about them."""
    lines = [[head for head, _ in outcome.columns.values()]]
    lines += [[cell(row[key], form) for key, (_, form) in outcome.columns.items()] for row in outcome.rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = [
        "   ".join(
            word.rjust(width) if place else word.ljust(width)
            for place, (word, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
    said = [*outcome.found, outcome.source]
    return "\n".join([*text, "", *(line for sentence in said for line in textwrap.wrap(sentence, WIDTH))])


def save(outcomes: Sequence[Outcome], heading: str, path: str) -> None:
    """The file, SVG or PNG by its name, has a panel for each outcome, with what is said about it underneath."""
    plot.load()
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    figure = Figure(figsize=(9, 0.8 + 4.8 * len(outcomes)), layout=ConstrainedLayoutEngine(h_pad=0.15))
    figure.suptitle(heading, fontsize=9, color=INK)
    panels = figure.subplots(len(outcomes), 1, squeeze=False)[:, 0]
    for outcome, panel in zip(outcomes, panels, strict=True):
        outcome.draw(panel)
        panel.set_title(f"{outcome.name}: {outcome.model}", fontsize=9, color=INK, loc="left")
        under = "\n".join(line for said in (*outcome.found, outcome.source) for line in textwrap.wrap(said, 130))
        panel.text(0, -0.2, under, fontsize=8, color=INK, va="top", transform=panel.transAxes)
        panel.spines[["top", "right"]].set_visible(False)
    plot.save(figure, path)


def bars(panel: Any, rows: Sequence[dict[str, Any]], name: str, x: str, per: str = "step") -> None:
    """A bar for each row: what a step computes, and what it waits for on top; whiskers are the step's quartiles.

    Args:
        name: the key of what the rows differ in; x: that in words.
    """
    places = range(len(rows))
    step, exposed = ([row[key]["median"] for row in rows] for key in ("step_ms", "exposed_comm_ms"))
    compute = [whole - part for whole, part in zip(step, exposed, strict=True)]
    away = [[row["step_ms"]["median"] - row["step_ms"]["q1"] for row in rows]]
    away += [[row["step_ms"]["q3"] - row["step_ms"]["median"] for row in rows]]
    panel.bar(places, compute, 0.6, color=plot.COLOURS[0], label="computation")
    panel.bar(places, exposed, 0.6, compute, color=plot.COLOURS[1], label="exposed communication")
    panel.errorbar(places, step, away, fmt="none", ecolor="black", capsize=4, lw=1)
    panel.set_xticks(places, [textwrap.fill(str(row[name]), 22) for row in rows], fontsize=8)
    panel.set_xlabel(x, color=INK)
    panel.set_ylabel(f"ms per {per}", color=INK)
    panel.set_ylim(0, 1.3 * max(row["step_ms"]["q3"] for row in rows))
    panel.legend(fontsize=8, frameon=False, ncols=2, loc="upper right")


def lines(
    panel: Any, xs: Sequence[float], series: Mapping[str, Sequence[Any]], x: str, y: str, least: float | None = None
) -> None:
    """A line for each series of spreads or numbers over xs, which are powers of two or near; None is left out."""
    for i, (name, values) in enumerate(series.items()):
        points = [(at, value) for at, value in zip(xs, values, strict=True) if value is not None]
        middle = [value["median"] if isinstance(value, dict) else value for _, value in points]
        style = {"color": plot.COLOURS[i], "marker": "os^v"[i % 4], "label": name}
        panel.plot([at for at, _ in points], middle, markersize=4, **style)
        if points and isinstance(points[0][1], dict):
            low, high = ([value[edge] for _, value in points] for edge in ("q1", "q3"))
            panel.fill_between([at for at, _ in points], low, high, color=plot.COLOURS[i], alpha=0.15, lw=0)
    panel.set_xscale("log", base=2)
    panel.set_xticks(list(xs), [f"{at:g}" for at in xs])
    panel.minorticks_off()
    panel.set_xlabel(x, color=INK)
    panel.set_ylabel(y, color=INK)
    panel.set_ylim(bottom=least)
    panel.grid(alpha=0.25)
    panel.legend(fontsize=8, frameon=False)
