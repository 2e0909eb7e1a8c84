"""Bandwidth and latency over size, everybody in one picture."""

from __future__ import annotations

import math
from typing import Any

from .. import plot
from .table import NAMES

SHADED = 4  # lines up to which the way from the median to the p99 is shown: more shades cannot be told apart
TICKS = 12  # on an axis, at most
PANELS = (("busbw", "bus bandwidth, back to back (GB/s)"), ("latency", "latency, one call at a time (us)"))
INK = "#444444"


def save(records: list[dict[str, Any]], path: str) -> None:
    """The file, SVG or PNG by its name, shows a row of panels for each place, type and operation measured."""
    plot.load()
    from matplotlib.figure import Figure

    groups: dict[tuple[Any, ...], dict[str, list[dict[str, Any]]]] = {}
    for record in records:
        group = groups.setdefault((record["in_place"], record["type"], record["op"]), {})
        # one line for what the library chose, whatever that was
        group.setdefault("mpicoll" if record["chosen"] else record["algorithm"], []).append(record)
    one = records[0]
    figure = Figure(figsize=(11, 0.6 + 3.7 * len(groups)), layout="constrained")
    figure.suptitle(f"{one['collective']}, {one['form']}, {one['ranks']} ranks, {one['environment']['mpi']}")
    axes = figure.subplots(len(groups), 2, squeeze=False)
    for (key, lines), pair in zip(groups.items(), axes, strict=True):
        for (quantity, label), panel in zip(PANELS, pair, strict=True):
            _panel(panel, lines, quantity)
            panel.set_title(", ".join(filter(None, (NAMES[key[0]], key[1], key[2]))), fontsize=10, color=INK)
            panel.set_ylabel(label, color=INK)
        pair[0].legend(fontsize=8, frameon=False)
    plot.save(figure, path)


def _panel(panel: Any, lines: dict[str, list[dict[str, Any]]], quantity: str) -> None:
    from matplotlib.ticker import MaxNLocator, NullFormatter

    for i, (name, rows) in enumerate(lines.items()):
        sizes = [row["nbytes"] for row in rows]
        style = {"color": plot.COLOURS[i % len(plot.COLOURS)], "marker": "os^vDP*X"[i // len(plot.COLOURS) % 8]}
        style["linestyle"] = "-" if rows[0]["by"] == "mpicoll" else "--"
        if quantity == "busbw":
            panel.plot(sizes, [row["busbw"] for row in rows], label=name, markersize=3.5, **style)
        else:
            middle = [row["latency_us"]["median"] for row in rows]
            panel.plot(sizes, middle, label=name, markersize=3.5, **style)
            if len(lines) <= SHADED:
                tail = [row["latency_us"]["p99"] for row in rows]
                panel.fill_between(sizes, middle, tail, color=style["color"], alpha=0.12, linewidth=0)
    sizes = sorted({row["nbytes"] for rows in lines.values() for row in rows})
    if sizes[0] > 0:  # a barrier has no bytes
        panel.set_xscale("log", base=2)
    ticks = sizes[:: math.ceil(len(sizes) / TICKS)]
    panel.set_xticks(ticks, [in_binary(size) for size in ticks])
    panel.set_yscale("log")
    low, high = panel.get_ylim()
    if high < 30 * low:  # there may be no power of ten
        panel.yaxis.set_major_locator(MaxNLocator(5))
    panel.yaxis.set_minor_formatter(NullFormatter())
    panel.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    panel.set_xlabel("size", color=INK)
    panel.grid(alpha=0.25)
    for side in ("top", "right"):
        panel.spines[side].set_visible(False)


def in_binary(value: float) -> str:
    """A size as the command takes it: 64K."""
    for letter in ("", "K", "M"):
        if value < 1024:
            return f"{value:g}{letter}"
        value /= 1024
    return f"{value:g}G"
