"""All that a table needs, measured within a given time, and how well the model predicts what it has not seen."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from statistics import mean
from typing import Any, NamedTuple

from mpi4py import MPI

from .. import arrays
from ..pricing import HOST
from ..rules import Rule, Rules, binary
from ..selection import choose, family
from ..tuning import Entry, Measured, this_mpi
from . import algorithms, calls, guidelines, ranges, reduction
from .reduction import Gammas
from .timing import Race, Watch, laps
from .wires import Wires

CHECKED = (1 << 10, 1 << 16, 1 << 20, 1 << 22, 1 << 24)  # bytes, none of them among algorithms.SIZES
COPIED, SEGMENTS, CHECKS = 0.07, 0.1, 0.15  # shares of the time; what is left is for links and algorithms

Times = dict[int, dict[str, float]]  # bytes -> algorithm -> time, see Found
Cell = tuple[str, int, bool]  # collective, bytes, whether in place
Tell = Callable[[str], object]


class Check(NamedTuple):
    """What the model predicted for auto's choice at a size that nothing was fitted to, and what it took."""

    collective: str
    nbytes: int
    algorithm: str
    predicted: float
    measured: float


class Found(NamedTuple):
    """What was measured.

    Attributes:
        entry: for the table.
        times: of every algorithm that was measured, by collective; in times of the best one, the mean over places.
        alone: what the model with these links takes without rules, by collective and number of bytes.
        checks: how well it predicts.
    """

    entry: Entry
    times: dict[str, Times]
    alone: dict[str, dict[int, str]]
    checks: list[Check]


def measure(watch: Watch, comm: Any, collectives: Sequence[str], seconds: float, tell: Tell) -> Found:
    """What was found out in about so many seconds; the communicator is left with it, and without an older table.

    Args:
        tell: is called with what is measured next.
    """
    comm.rules, comm.links = None, HOST
    wires, gammas = Wires(comm), Gammas(comm)

    def look() -> None:
        """Links and reduction are measured, once more: many times in all, far apart."""
        tell("links and reduction")
        wires.lap(watch)
        gammas.lap(watch)

    def measured(segment: int) -> Measured:
        return Measured(wires.node, wires.network, wires.shared, gammas.memory, gammas.cached, segment)

    tell("ways to reduce")
    copied = reduction.copied(watch, comm, COPIED * seconds)
    arrays.copy_between(*copied)
    look()
    comm.links = measured(HOST.segment).links
    tell("segments")
    segment = algorithms.segment(watch, comm, SEGMENTS * seconds)
    comm.links = measured(segment).links
    times, rules, alone = _algorithms(watch, comm, collectives, (1 - CHECKS) * seconds, tell, look)
    links = measured(segment)
    comm.links, comm.rules = links.links, Rules("just measured", rules)
    checks = _checks(watch, comm, collectives, seconds, tell)
    today = datetime.date.today().isoformat()
    return Found(Entry(this_mpi(), MPI.Get_processor_name(), today, links, copied, rules), times, alone, checks)


def _algorithms(
    watch: Watch, comm: Any, collectives: Sequence[str], end: float, tell: Tell, look: Callable[[], None]
) -> tuple[dict[str, Times], dict[str, tuple[Rule, ...]], dict[str, dict[int, str]]]:
    """Times, rules, and what the model alone takes. All sizes are gone through again and again while there is time."""
    sizes = {name: algorithms.sizes(name, comm.size) for name in collectives}
    each = (end - watch.now) / sum(len(sizes[name]) * len(calls.places(name)) for name in collectives)
    races: dict[Cell, Race[str]] = {}
    alone: dict[str, dict[int, str]] = {name: {} for name in collectives}
    for name in collectives:
        for nbytes in sizes[name]:
            model = choose(name, nbytes, comm.nodes, tuple(family(name)), comm.links)
            alone[name][nbytes], names = model.algorithm, algorithms.contenders(model.predicted, each)
            races |= {(name, nbytes, in_place): Race(names) for in_place in calls.places(name)}
    _run(watch, comm, races, end, tell, look)
    times: dict[str, Times] = {name: {} for name in collectives}
    noise: dict[str, dict[int, float]] = {name: {} for name in collectives}
    for name in collectives:
        for nbytes in sizes[name]:
            both = [races[name, nbytes, in_place] for in_place in calls.places(name)]
            times[name][nbytes] = ranges.over_places([found.times for found in both])
            noise[name][nbytes] = mean(found.noise for found in both)
    return times, {name: ranges.rules(times[name], noise[name]) for name in collectives}, alone


def _checks(watch: Watch, comm: Any, collectives: Sequence[str], end: float, tell: Tell) -> list[Check]:
    sizes = [calls.fitting(nbytes, comm.size) for nbytes in CHECKED]
    choices = {(name, n): comm.explain(name, n) for name in collectives if name != "barrier" for n in sizes}
    races = {(*cell, False): Race([choice.algorithm]) for cell, choice in choices.items()}
    _run(watch, comm, races, end, lambda what: tell(f"checking the model: {what}"), lambda: None)
    found = []
    for (name, nbytes), choice in choices.items():
        taken = choice.algorithm
        found.append(Check(name, nbytes, taken, choice.predicted[taken], races[name, nbytes, False].times[taken]))
    return found


def _run(
    watch: Watch,
    comm: Any,
    races: Mapping[Cell, Race[str]],
    end: float,
    tell: Tell,
    between: Callable[[], None],
) -> None:
    """Laps of all races, one after the other, until `end`: what disturbs the machine for seconds is in few laps."""
    for _ in laps(watch, end):
        for (name, nbytes, in_place), running in races.items():
            tell(f"{name} of {binary(nbytes)}")
            make = calls.maker(comm, name, nbytes, in_place)
            running.lap(watch, {algorithm: make(algorithm) for algorithm in running.alive})
        between()


def check_guidelines(watch: Watch, comm: Any, seconds: float, tell: Tell) -> list[guidelines.Line]:
    """All guidelines, with the algorithms that auto takes now, in about so many seconds."""
    times, sizes = {}, [calls.fitting(nbytes, comm.size) for nbytes in guidelines.SIZES]
    for done, nbytes in enumerate(sizes):
        tell(f"collectives of {binary(nbytes)}")
        times[nbytes] = guidelines.measure(watch, comm, nbytes, (seconds - watch.now) / (len(sizes) - done))
    return guidelines.check(times)
