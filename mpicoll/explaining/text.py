"""A Figure as text: a table for each step with a column for each rank, or a list of arrows where that is too wide."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction

from ..cost import Cost
from ..world.symbols import Expression
from .figure import Arrow, Figure, Part
from .forms import FORMS

TABLE = 8  # up to so many ranks there is a table
REDUCING = ("reduce", "allreduce", "reduce_scatter")


def figure_text(figure: Figure, width: int) -> str:
    """The steps, the results' order of reduction, and the costs."""
    lines = [heading(figure)]
    for words in (full_words, short_words) if figure.size <= TABLE else ():
        table = list(_table(figure, words))
        if max(map(len, table)) <= width:
            sent = "" if figure.pieces == 1 else f"{piece_name(figure)} 2 " if words is full_words else "2"
            arrow = f"{sent}{'->' if words is full_words else '>'}{' ' * (words is full_words)}0: sent to rank 0"
            lines += [*textwrap.wrap(f"{meaning(figure, words)}; {arrow}; *: new", width), "", *table]
            break
    else:
        lines += ["", *_list(figure, width)]
    lines += [line for part in (_orders(figure), _costs(figure, width)) if part for line in ("", *part)]
    return "\n".join(lines)


def heading(figure: Figure) -> str:
    options = "".join(f", {name} {option_text(value)}" for name, value in figure.options.items())
    root = f", root {figure.root}" if figure.collective in ("broadcast", "reduce", "gather", "scatter") else ""
    ranks, steps = plural(figure.size, "rank"), plural(len(figure.steps), "step")
    return f"{figure.collective} by {figure.algorithm}, {ranks}{root}{options}: {steps}"


def option_text(value: object) -> str:
    """Of a list, one entry for each rank: how often each comes."""
    if isinstance(value, list):
        return ",".join(str(len(list(group))) for _, group in itertools.groupby(value))
    return str(value)


def plural(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def letter(rank: int) -> str:
    return chr(ord("a") + rank)


def piece_name(figure: Figure) -> str:
    """What a piece is called: a chunk if there is one for each rank."""
    by_rank = figure.collective not in ("broadcast", "reduce") and figure.pieces == figure.size
    return "chunk" if by_rank else "piece"


def row_names(figure: Figure) -> list[str]:
    """What the rows of a rank are called."""
    if figure.collective == "alltoall":
        return [f"from {letter(rank)}" for rank in range(figure.size)]
    if figure.pieces == 1:
        return ["knows" if figure.collective == "barrier" else "buffer"]
    return [f"{piece_name(figure)} {piece}" for piece in range(figure.pieces)]


def is_new(figure: Figure, number: int, rank: int, row: int) -> bool:
    """Whether a rank holds something there after this step that it did not hold before it."""
    before = figure.held[number - 1][rank][row] if number else figure.held[0][rank][row]
    return any(part not in before for part in figure.held[number][rank][row])


def runs(values: Iterable[int], name: Callable[[int], str] = str, join: str = ",") -> str:
    """ "0,2-5": three or more neighbours are a range."""
    texts: list[str] = []
    for _, group in itertools.groupby(enumerate(sorted(values)), key=lambda pair: pair[1] - pair[0]):
        run = [value for _, value in group]
        texts += [f"{name(run[0])}-{name(run[-1])}"] if len(run) > 2 else map(name, run)
    return join.join(texts)


Words = Callable[[Figure, "Arrow | list[Part]"], str]


def full_words(figure: Figure, what: Arrow | list[Part]) -> str:
    """An arrow, or what a rank holds, with every contribution."""
    if isinstance(what, Arrow):
        pieces = [part.piece for part in what.parts]
        names = f"{piece_name(figure)}{'s' if len(pieces) > 1 else ''} {runs(pieces)} "
        return f"{names if figure.pieces > 1 else ''}-> {what.dest}"
    number = [str(part.piece) if figure.pieces > 1 else "" for part in what]
    return " ".join("+".join(letter(r) + n for r in sorted(part.ranks)) for part, n in zip(what, number, strict=True))


def short_words(figure: Figure, what: Arrow | list[Part]) -> str:
    """As `full_words`, in fewer characters."""
    if isinstance(what, Arrow):
        return f"{runs(part.piece for part in what.parts) if figure.pieces > 1 else ''}>{what.dest}"
    if figure.collective == "alltoall":
        return runs((part.piece for part in what), join="")
    return " ".join(runs(part.ranks, letter, "") for part in what)


def meaning(figure: Figure, words: Words) -> str:
    """What a cell says, by an example."""
    source = figure.root if figure.collective in ("broadcast", "scatter") else min(1, figure.size - 1)
    piece = source if figure.collective in ("allgather", "gather") else min(2, figure.pieces - 1)
    if figure.collective == "barrier":
        return "ab: it is known that ranks 0 and 1 have entered".replace("ab", "a+b" if words is full_words else "ab")
    if figure.collective == "alltoall":
        example = f"{letter(source)}{piece}" if words is full_words else f"{piece} from {letter(source)}"
        return f"{example}: rank {source}'s chunk for rank {piece}"
    adds = figure.collective in REDUCING and figure.size > 1
    if words is full_words:
        number, of = (str(piece), f"{piece_name(figure)} {piece}") if figure.pieces > 1 else ("", "the buffer")
        added = f"; a{number}+b{number}: the sum of ranks 0's and 1's" if adds else ""
        return f"{letter(source)}{number}: {of} of rank {source}{added}"
    return (
        "ac-f: the sum of ranks 0's and 2's to 5's"
        if figure.collective in REDUCING
        else f"{letter(source)}: rank {source}'s"
    )


def _table(figure: Figure, words: Words) -> Iterator[str]:
    """Lines: for the start and each step, what the ranks send and then what they hold."""
    names = row_names(figure)
    cells: list[list[str]] = [
        ["", *(f"{'rank ' * (words is full_words)}{rank}: {letter(rank)}" for rank in range(figure.size))]
    ]
    for number, state in enumerate(figure.held):
        arrows = {arrow.source: arrow for arrow in figure.steps[number - 1]} if number else {}
        sends = [words(figure, arrows[rank]) if rank in arrows else "" for rank in range(figure.size)]
        cells += [[], [f"step {number}", *sends]] if number else []
        for row, name in enumerate(names):
            line = [name]
            for rank, rows in enumerate(state):
                line.append((words(figure, rows[row]) or ".") + ("*" if is_new(figure, number, rank, row) else ""))
            cells.append(line)
    widths = [max(len(line[column]) for line in cells if line) for column in range(figure.size + 1)]
    for line in cells:
        yield "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=False)).rstrip()


def _list(figure: Figure, width: int) -> Iterator[str]:
    """Lines: for each step its arrows."""
    for number, step in enumerate(figure.steps, 1):
        label = f"step {number}".ljust(10)
        texts = [f"{arrow.source} -> {arrow.dest}{_carried(figure, arrow)}".replace(" ", "\0") for arrow in step]
        for line in textwrap.wrap("  ".join(texts), width, initial_indent=label, subsequent_indent=" " * 10):
            yield line.replace("\0", " ")


def _carried(figure: Figure, arrow: Arrow) -> str:
    return f": {piece_name(figure)} {runs(part.piece for part in arrow.parts)}" if figure.pieces > 1 else ""


def _orders(figure: Figure) -> list[str]:
    """What every piece of the result is made of, in the order of the operands; the same wherever it is held."""
    if figure.collective not in REDUCING or figure.size > TABLE:
        return []
    made = dict(key for result in figure.results for key in result)
    names = row_names(figure)
    title = "Operands in order, the same on all ranks:"
    return [title, *(f"{names[piece]} = {_expression(made[piece])}" for piece in sorted(made))]


def _expression(made_of: Expression) -> str:
    if isinstance(made_of, int):
        return letter(made_of)
    return "+".join(_expression(part) if isinstance(part, int) else f"({_expression(part)})" for part in made_of)


def _costs(figure: Figure, width: int) -> list[str]:
    """What each rank does, and the closed form."""
    groups: dict[Cost, list[int]] = {}
    for rank, cost in enumerate(figure.costs):
        groups.setdefault(cost, []).append(rank)
    lines = []
    for cost, ranks in sorted(groups.items(), reverse=True)[:8]:
        who = "every rank" if len(groups) == 1 else f"rank{'s' if len(ranks) > 1 else ''} {runs(ranks)}"
        text = f"{plural(cost.rounds, 'round')}, {plural(cost.messages, 'message')} sent"
        if figure.collective != "barrier":
            text += f", {_of(cost.sent, figure.nbytes)} bytes sent, {_of(cost.reduced, figure.nbytes)} reduced"
        lines.append((who, text))
    if len(groups) > 8:
        lines.append(("others", "no more than these"))
    if form := FORMS.get((figure.collective, figure.algorithm)):
        n = 60 * figure.size
        here = zip(form.times(figure.size, n, **figure.options), ("alpha", "n beta", "n gamma"), (1, n, n), strict=True)
        numbers = " + ".join(f"{often / unit} {name}".removeprefix("1 ") for often, name, unit in here if often)
        lines.append(("time", f"{form}; here {numbers or 0}"))
        if form.segments > 1 and figure.size > 1:
            s = figure.options.get("segments") or form.segments
            one, here_ = (form.times(figure.size, n, **{**figure.options, "segments": k})[0] for k in (1, s))
            lines.append(("steps", f"{one} with S = 1, as in the lesson; here S = {s}: {here_} messages in turn"))
        lines.append(("scratch", "none" if form.scratch == "0" else f"at most {form.memory}"))
        lines += [("where", form.names)] if form.names else []
    if figure.hidden:
        lines.append(("not drawn", f"{figure.hidden} empty messages: more segments than elements"))
    indent = max(len(name) for name, _ in lines) + 2
    return [
        line
        for name, text in lines
        for line in textwrap.wrap(text, width, initial_indent=name.ljust(indent), subsequent_indent=" " * indent)
    ]


def _of(nbytes: int, n: int) -> str:
    share = Fraction(nbytes, n)
    return "0" if not share else "n" if share == 1 else f"{share} n"
