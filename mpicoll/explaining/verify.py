"""Every algorithm run in the world on many sizes and counts: proven, and held against its cost and its closed form."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from .. import cost
from ..algorithms import FAMILIES, SAME_LENGTH, cut
from ..algorithms.double_tree import edges
from ..world import Fault, prove
from ..world.trace import Measured
from .forms import FORMS, Form

ROOTED = ("broadcast", "reduce", "gather", "scatter")
NOT_IN_PLACE = ("broadcast", "alltoall", "barrier")
ITEM = 8  # bytes of an element of the world
ALPHA, BETA, GAMMA = 10**12, 10**6 + 3, 17  # integers, so that times can be equal


HEADING = """In every run it is proven that messages match in order and length; that nothing
deadlocks if sends wait for their receives; that no memory is touched by two
things at once; that every contribution is in every result once, in the same
order on all ranks; that a rank's rounds, messages, bytes sent and bytes reduced
are those of mpicoll/cost; and that it takes no more scratch memory than is
stated. What the letters mean: explain COLLECTIVE ALGORITHM.

Beside that: how many M-byte buffers pass the busiest port in one direction, and
which rank's it is; whether the time that is predicted where p divides n is the
literature's closed form (=) or within it (<=)."""


class WrongCost(Fault):
    """A rank's rounds, messages, bytes sent or bytes reduced are not those of its closed form in `cost`."""


class WrongTime(Fault):
    """The time that `cost` predicts is not that of the literature."""


class TooMuchScratch(Fault):
    """A rank takes more scratch memory than is stated."""


class InnerTwice(Fault):
    """A rank of the double tree is inner in both trees, or in none, for an even number of ranks."""


class NotStated(Fault):
    """Nobody has stated the closed form of the algorithm's time and memory."""


class Case(NamedTuple):
    """A run in the world."""

    counts: Sequence[Any]
    root: int = 0
    in_place: bool = False
    options: dict[str, Any] = {}  # noqa: RUF012 a default that nobody changes

    def __str__(self) -> str:
        options = "".join(f", {name} {value}" for name, value in self.options.items())
        place = ", in place" if self.in_place else ""
        return f"{len(self.counts)} ranks, counts {list(self.counts)}, root {self.root}{place}{options}"


class Busiest(NamedTuple):
    """The port that most bytes pass in one direction: how many buffers of n bytes, and of which rank, None: of all."""

    size: int
    buffers: Fraction
    rank: int | None


class Verdict(NamedTuple):
    """What `verify` found: the number of runs, the busiest ports, and what is wrong, if anything."""

    collective: str
    algorithm: str
    runs: int
    busiest: list[Busiest]
    problem: str | None

    def __str__(self) -> str:
        name = f"{self.collective + ' ' + self.algorithm:<33}"
        if self.problem:
            return f"{name} WRONG: {self.problem}"
        form = FORMS[self.collective, self.algorithm]
        rank = "every" if self.busiest[-1].rank is None else str(self.busiest[-1].rank)
        shares = "".join(f"{float(busiest.buffers):6.2f}" for busiest in self.busiest)
        time = {"never": "=", "always": "<="}.get(form.bound, "= <=")
        return f"{name}{self.runs:>5}{shares} {rank:<5} {time:<4} {'none' if form.scratch == '0' else form.memory}"


def columns(max_size: int) -> str:
    """The line above the verdicts."""
    sizes = "".join(f"{f'p={size}':>6}" for size in (8, max(8, max_size)))
    return f"{'':<34}runs{sizes} rank  time scratch, at most"


def verify(collective: str, algorithm: str, max_size: int) -> Verdict:
    """The algorithm, run on all `cases` and held against all that is stated of it; the first problem ends it."""
    runs, case = 0, None
    try:
        for case in cases(collective, algorithm, max_size):
            examine(collective, algorithm, case)
            runs += 1
        case = None
        compare_times(collective, algorithm)
        if algorithm == "double_tree":
            check_inner(max_size)
        busiest = [busiest_port(collective, algorithm, size) for size in (8, max(8, max_size))]
    except Exception as problem:  # whatever an algorithm raises is wrong with it
        where = f" ({case})" if case else ""
        return Verdict(collective, algorithm, runs, [], f"{type(problem).__name__}: {problem}{where}")
    return Verdict(collective, algorithm, runs, busiest, None)


def cases(collective: str, algorithm: str, max_size: int) -> Iterator[Case]:
    """All counts for sizes 1 to 17, uneven ones and options for small sizes, size + 1 for each size up to max_size.

    Above 17 it is every sixth size if the messages, or the elements to look at, grow as the square of the size.
    """
    places = (False,) if collective in NOT_IN_PLACE else (False, True)

    def chunks(count: int, size: int) -> tuple[int, ...]:
        one_length = (collective, algorithm) in SAME_LENGTH
        return cut.even(-(-count // size) * size if one_length else count, size)

    for size in range(1, min(17, max_size) + 1):
        counts = {0, 1, size - 1, size, size + 1, 2, 7, 37} if collective != "barrier" else {0}
        for lengths in sorted({chunks(count, size) for count in counts}):
            for root in roots(collective, size):
                by_turns = (places[(root + size) % len(places)],)
                tried = by_turns if sum(lengths) in (2, 7, 37) and size > 3 else places
                yield from (Case(lengths, root, in_place) for in_place in tried)
    for size in range(1, min(9, max_size) + 1):
        for unlike in uneven(collective, size) if (collective, algorithm) not in SAME_LENGTH else []:
            yield from (Case(unlike, size // 2 if collective in ROOTED else 0, in_place) for in_place in places)
        for options in swept(collective, algorithm, size):
            for count in (0, size + 1, 5 * size):
                yield Case(chunks(count, size), size // 2 if collective in ROOTED else 0, bool(count % 2), options)
    messages = sum(cost.of(collective, algorithm, rank, [1] * 17, ITEM).messages for rank in range(17))
    every = 6 if messages >= 17 * 16 or collective == "alltoall" else 1
    for number, size in enumerate(range(max_size, 17, -every)):
        root = size // 3 if collective in ROOTED else 0
        yield Case(chunks(size + 1, size), root, places[number % len(places)])


def roots(collective: str, size: int) -> list[int]:
    return sorted({0, size // 2, size - 1}) if collective in ROOTED else [0]


def uneven(collective: str, size: int) -> list[Sequence[Any]]:
    """Chunks of different lengths; in an all-to-all every pair of ranks has its own."""
    counts: list[Sequence[Any]] = [range(size), [0] * (size - 1) + [9], [3 * rank % 5 for rank in range(size)]]
    table = [[(3 * source + 5 * dest) % 7 for dest in range(size)] for source in range(size)]
    return [*counts, table] if collective == "alltoall" else counts


def swept(collective: str, algorithm: str, size: int) -> list[dict[str, Any]]:
    """The algorithm's options, with the values that are tried on so many ranks."""
    two, odd = [rank * 2 // size for rank in range(size)], [min(rank % 3, 1) for rank in range(size)]
    values: dict[str, list[Any]] = {
        "segments": [2, 3, 5],
        "channels": [2, 3],
        "parts": [2, 3],
        "aggregate": [1, 2, 4],
        "near": [True],
        "nodes": [two, odd],
    }
    takes = inspect.signature(FAMILIES[collective][algorithm]).parameters
    found = [{name: value} for name in values if name in takes for value in values[name]]
    return found + [{"nodes": nodes, "parts": 2} for nodes in values["nodes"] if "nodes" in takes and "parts" in takes]


def examine(collective: str, algorithm: str, case: Case) -> Measured:
    """One run is proven, and its costs and memory are those stated; a Fault says what is not.

    Raises:
        Fault: of `world.faults` or of this module.
    """
    world = Measured(len(case.counts))
    proof = prove(
        collective,
        algorithm,
        len(case.counts),
        counts=case.counts,
        root=case.root,
        in_place=case.in_place,
        world=world,
        **case.options,
    )
    for rank, counts in enumerate(proof.counts):
        counted = cost.Cost(**vars(counts))
        stated = cost.of(collective, algorithm, rank, case.counts, ITEM, case.root, **case.options)
        if counted != stated:
            raise WrongCost(f"rank {rank}: {counted}, stated is {stated}")
    if (collective, algorithm) not in FORMS:
        raise NotStated("explaining.forms has no closed form")
    most = _most_scratch(FORMS[collective, algorithm], collective, case)
    for rank, taken in enumerate(world.scratch):
        if taken > most:
            raise TooMuchScratch(f"rank {rank}: {taken} elements, stated are at most {most}")
    return world


def _most_scratch(form: Form, collective: str, case: Case) -> Fraction:
    """Elements; channels take the memory for a part of each chunk each."""
    rows = cut.rows(case.counts) if collective == "alltoall" else [case.counts]
    k: int = case.options.get("channels", 1)
    parts = [[-(-count // k) for count in row] for row in rows]
    return k * form.most_scratch(len(rows[0]), max(map(sum, parts)), max(map(max, parts)), **case.options)


def compare_times(collective: str, algorithm: str) -> None:
    """What `cost` predicts is the closed form's time where the size divides the count, or within it if it is a bound.

    Raises:
        WrongTime: it is not.
    """
    form = FORMS[collective, algorithm]
    for p in (2, 3, 4, 7, 8, 16, 33, 64):
        for options in [{}, *swept(collective, algorithm, p)]:
            if len(set(Counter(options.get("nodes", [0])).values())) > 1:
                continue  # with unequal nodes it depends on more than their number
            chunk = 60 << (p.bit_length() - 1)  # bytes, so that everything divides
            times = zip(form.times(p, p * chunk, **options), (ALPHA, BETA, GAMMA), strict=True)
            stated = sum(often * unit for often, unit in times)
            predicted = cost.predict(collective, algorithm, [chunk] * p, 1, ALPHA, BETA, GAMMA, **options)
            if predicted > stated or (predicted < stated and form.is_exact(p, options.get("channels", 1))):
                given = "".join(f", {name} {value}" for name, value in options.items())
                raise WrongTime(f"{p} ranks, {p * chunk} bytes{given}: {predicted} is predicted, {stated} is {form}")


def check_inner(max_size: int) -> None:
    """For even p each rank is inner in exactly one of the trees, so no port carries both halves twice.

    Raises:
        InnerTwice: one is not.
    """
    for p in range(2, max_size + 1, 2):
        inner = Counter(rank for tree in (0, 1) for rank in {e.parent for e in edges(p, False) if e.tree == tree})
        for rank in range(p):
            if inner[rank] != 1:
                raise InnerTwice(f"rank {rank} of {p} is inner in {inner[rank]} trees")


def busiest_port(collective: str, algorithm: str, size: int) -> Busiest:
    """Of a buffer that the size divides."""
    world = Measured(size)
    counts = [4] * size
    proof = prove(collective, algorithm, size, counts=counts, world=world)
    bytes_of = [max(counted.sent, received) for counted, received in zip(proof.counts, world.received, strict=True)]
    n, most = ITEM * sum(counts), max(bytes_of)
    rank = None if bytes_of.count(most) == size else bytes_of.index(most)
    return Busiest(size, Fraction(most, n), rank)
