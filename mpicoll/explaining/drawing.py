"""The figure of an algorithm as a picture."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..plot import COLOURS, load, save
from .figure import Figure
from .text import REDUCING, Words, full_words, heading, is_new, meaning, piece_name, row_names, runs, short_words

CELLS = 1500  # more cannot be read
HEIGHT, ARROWS, TITLE = 0.24, 0.75, 0.55  # inches: of a cell, of the arrows between two states, of the heading


def draw_figure(figure: Figure, path: str | Path) -> None:
    """The file shows what the ranks hold, column by column, and between the states the arrows of each step.

    Raises:
        NoPlot: matplotlib is not installed.
        ValueError: there is too much to be seen.
    """
    rows = len(row_names(figure))
    cells = figure.size * rows * (len(figure.steps) + 1)
    if not figure.held or cells > CELLS:
        raise ValueError(f"--svg: {cells} cells cannot be read in a picture; take fewer ranks than {figure.size}")
    load()
    from matplotlib.figure import Figure as Picture

    words = full_words if figure.size <= 4 else short_words
    longest = max(len(words(figure, row)) for state in figure.held for rank in state for row in rank)
    cell, gap, label = max(0.085 * longest + 0.14, 0.6), 0.28, 0.75
    strip = label + figure.size * (cell + gap) + 0.3
    state = rows * HEIGHT + 0.1
    strips = _strips(len(figure.steps), strip, state)
    steps = math.ceil(len(figure.steps) / strips)
    width, height = max(strips * strip, 6.5), TITLE + 0.55 + (steps + 1) * state + steps * ARROWS
    picture = Picture(figsize=(width, height))
    axes = picture.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, width), ylim=(height, 0))
    axes.axis("off")
    axes.text(0.15, 0.22, heading(figure), fontsize=12, weight="bold", va="center")
    numbers = f"; a number on an arrow: the {piece_name(figure)} that is sent" if figure.pieces > 1 else ""
    axes.text(0.15, 0.45, f"{meaning(figure, words)}{numbers}; a frame: new", fontsize=8, va="center", color="#444444")
    for first in range(strips):  # a strip begins with the state that the one before ended with
        left = first * strip + label
        middles = [left + rank * (cell + gap) + cell / 2 for rank in range(figure.size)]
        for rank, x in enumerate(middles):
            axes.text(x, TITLE + 0.2, f"rank {rank}", fontsize=8, ha="center", va="center", color="#444444")
        for number in range(first * steps, min((first + 1) * steps, len(figure.steps)) + 1):
            top = TITLE + 0.36 + (number - first * steps) * (state + ARROWS)
            _draw_state(axes, figure, number, left, top, cell, gap, words)
            if number < min((first + 1) * steps, len(figure.steps)):
                _draw_arrows(axes, figure, number, middles, top + state - 0.06, top + state + ARROWS - 0.05, left)
    save(picture, path)


def _strips(steps: int, width: float, state: float) -> int:
    """Into how many strips, side by side, the steps are best cut, so that the picture is about as wide as a screen."""

    def shape(strips: int) -> float:
        return abs(math.log(strips * width / (math.ceil(steps / strips) * (state + ARROWS) + state) / 1.5))

    return min(range(1, steps + 1), key=shape, default=1)


def _draw_state(
    axes: Any, figure: Figure, number: int, left: float, top: float, cell: float, gap: float, words: Words
) -> None:
    """What the ranks hold before a step; the more contributions, the darker; what is new has a frame."""
    from matplotlib.patches import Rectangle

    adds = figure.collective in (*REDUCING, "barrier")
    for row, name in enumerate(row_names(figure)):
        y = top + row * HEIGHT
        axes.text(left - 0.1, y + HEIGHT / 2, name, fontsize=7, ha="right", va="center", color="#666666")
        for rank, rows in enumerate(figure.held[number]):
            x = left + rank * (cell + gap)
            share = max((len(part.ranks) for part in rows[row]), default=0) / figure.size if adds else 0.5
            new = is_new(figure, number, rank, row)
            colour = _colour([part.piece for part in rows[row]]) if new else "#999999"
            fill = (1 - 0.32 * share, 1 - 0.16 * share, 1 - 0.04 * share) if rows[row] else "white"
            axes.add_patch(
                Rectangle((x, y + 0.02), cell, HEIGHT - 0.04, fc=fill, ec=colour, lw=1.8 if new else 0.5, zorder=2)
            )
            axes.text(
                x + cell / 2, y + HEIGHT / 2, words(figure, rows[row]), fontsize=8, ha="center", va="center", zorder=3
            )


def _draw_arrows(
    axes: Any, figure: Figure, number: int, middles: Sequence[float], top: float, bottom: float, left: float
) -> None:
    """The messages of a step, from the ranks above to the ranks below, each with the number of the piece it carries."""
    axes.text(left - 0.1, (top + bottom) / 2, f"step {number + 1}", fontsize=8, weight="bold", ha="right", va="center")
    for arrow in figure.steps[number]:
        pieces = [part.piece for part in arrow.parts]
        colour, start, end = _colour(pieces), middles[arrow.source], middles[arrow.dest]
        axes.annotate(
            "",
            (end, bottom),
            (start, top),
            arrowprops={"arrowstyle": "-|>", "color": colour, "lw": 1.4, "shrinkA": 0, "shrinkB": 0},
        )
        if figure.pieces > 1:
            box = {"boxstyle": "round,pad=0.15", "fc": "white", "ec": "none"}
            share = 0.15 if start < end else 0.32  # of the way: where arrows cross, labels do not
            x, y = start + share * (end - start), top + share * (bottom - top)
            axes.text(x, y, runs(pieces), fontsize=8, color=colour, ha="center", va="center", bbox=box, zorder=4)


def _colour(pieces: Sequence[int]) -> str:
    """Of one piece its own, of several black."""
    return COLOURS[pieces[0] % len(COLOURS)] if len(set(pieces)) == 1 else "#222222"
