"""Why a ring cuts messages: the time of a pipelined algorithm over the number of segments, by formula and simulated."""

from __future__ import annotations

import inspect
import math
import textwrap
from collections.abc import Sequence
from typing import NamedTuple

from ..algorithms import FAMILIES
from ..algorithms.cut import even
from ..cost import link_of
from ..links import Link, uniform
from ..plot import COLOURS, load, save
from ..simulation.text import table
from ..simulation.units import digits
from ..world.clock import simulate
from .choice import Wiring
from .forms import FORMS, Form

MESSAGES = 500_000  # of all ranks; more are not simulated
BANDWIDTH = Link("bandwidth", 0, 1)  # a byte takes a second, a message as such nothing: times are in N/B


class Point(NamedTuple):
    """The times of one number of segments, in N/B: without latency, by formula and simulated, and on given links."""

    segments: int
    formula: float
    simulated: float
    with_latency: float | None


class Sweep(NamedTuple):
    collective: str
    algorithm: str
    size: int
    nbytes: int
    points: list[Point]
    form: Form
    wiring: Wiring | None


def sweep(
    collective: str, algorithm: str, size: int, segments: Sequence[int], nbytes: int | None, wiring: Wiring | None
) -> Sweep:
    """The times of N bytes in each number of segments; N is `nbytes`, or what all of them divide.

    Raises:
        ValueError: the algorithm takes no segments, or not so many.
    """
    if "segments" not in inspect.signature(FAMILIES[collective][algorithm]).parameters:
        having = [name for name, f in FAMILIES[collective].items() if "segments" in inspect.signature(f).parameters]
        raise ValueError(f"{collective}: {algorithm} has no segments; of this collective {', '.join(having)} have")
    if size < 2 or size * size * max(segments) > MESSAGES:
        raise ValueError(
            f"--segments: {max(segments)} on {size} ranks cannot be simulated; take 2 ranks or more, and less"
        )
    n = nbytes or 64 * size * math.lcm(*segments)
    counts, form = even(n, size), FORMS[collective, algorithm]
    points = []
    for s in segments:
        seconds = simulate(collective, algorithm, counts, 1, uniform(BANDWIDTH, size), segments=s).seconds
        formula = form.times(size, n, segments=s)[1]
        slow = None
        if wiring:
            link = link_of("", wiring.slowest)
            slow = simulate(collective, algorithm, counts, 1, uniform(link, size), segments=s).seconds / (n * link.beta)
        points.append(Point(s, float(formula / n), seconds / n, slow))
    return Sweep(collective, algorithm, size, n, points, form, wiring)


def sweep_text(found: Sweep, width: int) -> str:
    """A line for each number of segments."""
    name = f"{found.collective} by {found.algorithm}: N bytes to K = {found.size} ranks in S segments, bandwidth B"
    ring = found.algorithm == "ring" and found.collective in ("broadcast", "reduce")
    formula = "(K-2+S) N/(S B)" if ring else f"{found.form.beta.replace('*', ' ').replace('p', 'K')} / B"
    header = ["S", formula, "simulated"]
    rows = [[str(p.segments), f"{p.formula:.3f} N/B", f"{p.simulated:.3f} N/B"] for p in found.points]
    lines = [name]
    if ring:
        lines += [f"whole, hop by hop: (K-1) N/B = {found.size - 1} N/B"]
    if found.wiring:
        link = found.wiring.slowest
        lines += textwrap.wrap(f"N = {found.nbytes:,} bytes, {found.wiring.text}", width, subsequent_indent="  ")
        header.append("with latency")
        for row, point in zip(rows, found.points, strict=True):
            row.append(f"{digits((point.with_latency or 0) * found.nbytes * link.beta * 1e6)} us")
        if ring and link.alpha:
            best = math.sqrt((found.size - 2) * found.nbytes * link.beta / link.alpha)
            lines.append(f"best S = sqrt((K-2) N beta / alpha) = {digits(best)}")
    return "\n".join([*lines, "", *table(header, rows, "r" * len(header))])


def draw_sweep(found: Sweep, path: str) -> None:
    """The file shows the times over the number of segments, in N/B.

    Raises:
        NoPlot: matplotlib is not installed.
    """
    load()
    from matplotlib.figure import Figure as Picture

    picture = Picture(figsize=(7.5, 4.5), layout="constrained")
    axes = picture.subplots()
    segments = [point.segments for point in found.points]
    axes.plot(segments, [p.formula for p in found.points], color=COLOURS[0], lw=1.5, label="formula, no latency")
    axes.plot(segments, [p.simulated for p in found.points], "o", color=COLOURS[1], ms=7, mfc="none", label="simulated")
    if found.wiring:
        slow = [p.with_latency or 0 for p in found.points]
        axes.plot(
            segments, slow, "s--", color=COLOURS[2], ms=5, label=f"simulated with latency, {found.nbytes:,} bytes"
        )
    if found.collective in ("broadcast", "reduce"):
        axes.axhline(1, color="#888888", ls=":", label="N/B: nothing is faster")
    if found.algorithm == "ring" and found.collective in ("broadcast", "reduce"):
        axes.axhline(found.size - 1, color="#888888", ls="--", label="(K-1) N/B: whole, hop by hop")
    axes.set_xscale("log", base=2)
    axes.set_xticks(segments, [str(s) for s in segments])
    axes.set(xlabel="segments S", ylabel="time in N/B", ylim=(0, None))
    axes.set_title(f"{found.collective} by {found.algorithm}, {found.size} ranks")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    save(picture, path)
