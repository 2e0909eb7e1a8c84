"""The winner over bytes and ranks: which algorithm has the shortest predicted time, and where that changes."""

from __future__ import annotations

import itertools
import math
import textwrap
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ..algorithms import FAMILIES
from ..plot import COLOURS, load, save
from ..pricing import Links
from ..selection import choose
from ..simulation.units import in_bytes
from .choice import Wiring, allowed, wrapped
from .forms import FORMS

RANKS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128, 256, 512, 1024)
BYTES = [8 * 4**k for k in range(13)]  # 8 B to 128 MiB
PAIR = ("tree", "ring")  # of the lesson


class Crossover(NamedTuple):
    """winners[i][k] is the fastest for RANKS[i] and BYTES[k]; changes[i] lists from how many bytes on it is which."""

    collective: str
    winners: list[list[str]]
    changes: list[list[tuple[int, str]]]
    pair: list[list[tuple[int, str]]]


def crossover(collective: str, links: Links) -> Crossover:
    """Of the algorithms that MPICOLL_ALGORITHM allows, by the model; a tuning table's rules are not looked at.

    `pair` has the changes of ring and tree alone, if both exist. Its ring is the lesson's: chunks are whole (S = 1).
    """
    names = allowed(collective)
    choose(collective, BYTES[0], (0,) * RANKS[0], names, links)  # says if nothing is allowed
    winners, changes = _all(names, lambda name, nbytes, size: links.predict(collective, name, nbytes, size))
    if not set(PAIR) <= set(FAMILIES[collective]):
        return Crossover(collective, winners, changes, [])
    _, pair = _all(PAIR, lambda name, nbytes, size: lesson_time(links, collective, name, nbytes, size))
    return Crossover(collective, winners, changes, pair)


def lesson_time(links: Links, collective: str, name: str, nbytes: int, size: int) -> float:
    """The predicted seconds; of a ring that cuts chunks so that it can reduce meanwhile, with whole ones."""
    form = FORMS[collective, name]
    if form.segments == 1:
        return links.predict(collective, name, nbytes, size)
    alphas, betas, gammas = (float(often) for often in form.times(size, nbytes, segments=1))
    alpha, beta = links.node.rates(betas / max(alphas, 1))
    return alphas * alpha + betas * beta + gammas * links.rate(nbytes)


Time = Callable[[str, int, int], float]  # of an algorithm for so many bytes on so many ranks


def _all(names: Sequence[str], time: Time) -> tuple[list[list[str]], list[list[tuple[int, str]]]]:
    """The winners and the changes for all RANKS and BYTES."""
    winners = [[_winner(time, nbytes, size, names) for nbytes in BYTES] for size in RANKS]
    return winners, [_changes(time, size, names, row) for size, row in zip(RANKS, winners, strict=True)]


def _winner(time: Time, nbytes: int, size: int, names: Sequence[str]) -> str:
    return min(names, key=lambda name: time(name, nbytes, size))


def _changes(time: Time, size: int, names: Sequence[str], winners: Sequence[str]) -> list[tuple[int, str]]:
    """From how many bytes on which one is the fastest, given the winners at BYTES."""

    def between(low: int, first: str, high: int, last: str) -> list[tuple[int, str]]:
        below, above = low, high  # where the last one overtakes the first one
        while above - below > 1:
            middle = (below + above) // 2
            ahead = _winner(time, middle, size, sorted((first, last), key=names.index)) == last
            below, above = (below, middle) if ahead else (middle, above)
        other = _winner(time, above, size, names)
        if other in (first, last):
            return [(above, last)]
        return between(low, first, above, other) + between(above, other, high, last)  # a third one in the middle

    found = [(BYTES[0], winners[0])]
    for (low, first), (high, last) in itertools.pairwise(zip(BYTES, winners, strict=True)):
        found += between(low, first, high, last) if first != last else []
    return found


def crossover_text(found: Crossover, wiring: Wiring, width: int) -> str:
    """The winners as a table of letters, and the sizes at which they change."""
    letters = _letters(found)
    lines = [
        f"The fastest {found.collective} by bytes and ranks",
        *wrapped(wiring.text, width, "  "),
    ]
    lines += ["", "ranks".rjust(9) + "".join(f"{size:>5}" for size in RANKS)]
    for k, nbytes in enumerate(BYTES):
        row = "".join(f"{letters[winners[k]]:>5}" for winners in found.winners)
        lines.append(f"{_size(nbytes):>9}{row}")
    lines += ["", *(f"{letter:<4}{name}" for name, letter in letters.items()), ""]
    for size, changes in zip(RANKS, found.changes, strict=True):
        first, *others = changes
        text = first[1] + "".join(f", from {in_bytes(nbytes)} {name}" for nbytes, name in others)
        lines += textwrap.wrap(text, width, initial_indent=f"{size:>5} ranks: ", subsequent_indent=" " * 13)
    if found.pair:
        lines += ["", "Of ring and tree alone, as in the lesson (a ring of whole chunks, S = 1):"]
        lines += [f"{size:>5} ranks: {_of_pair(changes)}" for size, changes in zip(RANKS, found.pair, strict=True)]
    return "\n".join(lines)


def _letters(found: Crossover) -> dict[str, str]:
    """The initials of each winner; of its first letters as many as it takes where others have the same."""
    letters: dict[str, str] = {}
    for name in FAMILIES[found.collective]:
        if any(name in winners for winners in found.winners):
            initials = "".join(word[0] for word in name.split("_"))
            ways = initials, *(name[:length] for length in range(1, len(name) + 1))
            letters[name] = next(way for way in ways if way not in letters.values())
    return letters


def _size(nbytes: int) -> str:
    for unit in "MiB", "KiB":
        size = 1 << {"MiB": 20, "KiB": 10}[unit]
        if nbytes >= size:
            return f"{nbytes // size} {unit}"
    return f"{nbytes} B"


def _of_pair(changes: Sequence[tuple[int, str]]) -> str:
    (_, first), *others = changes
    return first + "".join(f", from {in_bytes(nbytes)} {name}" for nbytes, name in others)


def _height(nbytes: int) -> float:
    """Where a size is on the axis: the middle of the area k belongs to BYTES[k]."""
    return math.log(nbytes / BYTES[0], 4) + 0.5


def draw_crossover(found: Crossover, wiring: Wiring, path: str) -> None:
    """The file shows the winners as areas over bytes and ranks, and where ring overtakes tree as a line.

    Raises:
        NoPlot: matplotlib is not installed.
    """
    load()
    from matplotlib.colors import BoundaryNorm, ListedColormap
    from matplotlib.figure import Figure as Picture
    from matplotlib.patches import Patch

    names = list(_letters(found))
    picture = Picture(figsize=(9, 5.2), layout="constrained")
    axes = picture.subplots()
    areas = [[names.index(winners[k]) for winners in found.winners] for k in range(len(BYTES))]
    colours = ListedColormap([COLOURS[i % len(COLOURS)] for i in range(len(names))])
    norm = BoundaryNorm([i - 0.5 for i in range(len(names) + 1)], max(len(names), 1))
    axes.pcolormesh(areas, cmap=colours, norm=norm, alpha=0.75, edgecolors="white", linewidth=0.5)
    axes.set_xticks([i + 0.5 for i in range(len(RANKS))], [str(size) for size in RANKS])
    axes.set_yticks([k + 0.5 for k in range(len(BYTES))], [_size(nbytes) for nbytes in BYTES])
    axes.set(xlabel="ranks", ylabel="bytes of the whole buffer", title=f"The fastest {found.collective}")
    picture.supxlabel(textwrap.fill(wiring.text, 130), fontsize=8, color="#555555")
    handles: list[Any] = [Patch(color=colours(i), alpha=0.75, label=name) for i, name in enumerate(names)]
    border = [(i + 0.5, _height(changes[1][0])) for i, changes in enumerate(found.pair) if len(changes) > 1]
    if border:
        line = axes.plot(
            *zip(*border, strict=True), "o-", color="black", ms=3, lw=1.2, label="ring (S = 1) beats tree above"
        )
        handles += line
    picture.legend(handles=handles, loc="outside right upper", frameon=False)
    save(picture, path)
