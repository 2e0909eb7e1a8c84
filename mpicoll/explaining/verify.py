"""Every algorithm run in the world on many sizes and counts: proven, and held against its cost and its closed form."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from typing import NamedTuple

from .. import cost
from ..algorithms import cut
from ..algorithms.double_tree import edges
from ..world import Fault, prove
from ..world.trace import Measured
from .cases import Case, cases, swept
from .forms import FORMS, Form

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
literature's closed form (=), or within it (<=), or within it where p is no
power of two (= <=). In a double tree of even p each rank is inner in just one
of the trees."""


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
