"""Which algorithm a call takes on given links, and why: the predicted time of every candidate, and where it changes."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Sequence
from typing import Any, NamedTuple

from .. import cost, links, selection
from ..algorithms import FAMILIES
from ..algorithms.cut import even
from ..selection import DEVICE, HOST, Links
from ..simulation.text import table
from ..simulation.units import digits, in_time
from ..world.clock import simulate
from .figure import Figure

OWN = {"host": HOST, "device": DEVICE}  # what the library itself takes for NumPy's arrays, and for devices'
MESSAGES = 100_000  # more are not simulated


class Wire(NamedTuple):
    """The links of a question.

    Attributes:
        links, text: for the model, and in words.
        topology: if it has several levels.
        sharp: the link, if its switches reduce.
    """

    links: Links
    text: str
    topology: links.Topology | None = None
    sharp: links.Link | None = None


def wire(name: str, size: int) -> Wire:
    """The links called `name`: "host" or "device", or what `links.parse` reads. Presets have a GPU's gamma.

    Raises:
        ValueError: there are none; the text lists those there are.
    """
    if name in OWN:
        found, counts = OWN[name], "as this library takes them"
        return Wire(found, _text(name, found, counts))
    try:
        topology = links.parse(name, size)
    except ValueError as error:
        raise ValueError(f"--links: {error}; or this library's own, {' and '.join(OWN)}") from None
    slowest = max((level.link for level in topology.levels), key=lambda link: link.beta)
    found = DEVICE._replace(alpha=slowest.alpha, beta=slowest.beta, segment=HOST.segment)
    if len(topology.levels) == 1:
        return Wire(found, _text(name, found, slowest.counts), sharp=slowest if slowest.sharp else None)
    return Wire(found, name, topology)


def _text(name: str, found: Links, counts: str) -> str:
    cached = f" (from a cache {digits(found.gamma_cached * 1e12)})" if found.gamma_cached != found.gamma else ""
    return (
        f"{name}: alpha {in_time(found.alpha)}, 1/beta {digits(1e-9 / found.beta)} GB/s ({counts}), "
        f"gamma {digits(found.gamma * 1e12)} ps/B{cached}"
    )


def allowed(collective: str) -> tuple[str, ...]:
    """The algorithms that MPICOLL_ALGORITHM lets a call take."""
    return selection.parse(os.environ.get(selection.VARIABLE, ""))[collective]


class Candidate(NamedTuple):
    """An algorithm's predicted time in seconds, and of what it is made: messages one after the other, bytes, ..."""

    name: str
    seconds: float
    messages: int
    nbytes: int
    reduced: int


MANY = 1 << 80  # more than any number of bytes


def candidates(collective: str, nbytes: int, size: int, wire: Wire, predicted: dict[str, float]) -> list[Candidate]:
    """The algorithms of the collective with their `predicted` times, the fastest first."""
    found = []
    for name, seconds in predicted.items():
        options = wire.links.options(collective, name, nbytes, size)
        # One number in which messages, bytes and bytes reduced can be told apart.
        parts = int(cost.predict(collective, name, even(nbytes, size), 1, MANY * MANY, MANY, 1, **options))
        found.append(Candidate(name, seconds, parts // MANY // MANY, parts // MANY % MANY, parts % MANY))
    return sorted(found, key=lambda candidate: candidate.seconds)


def choice_text(collective: str, nbytes: int, size: int, wire: Wire, width: int) -> str:
    """The predicted time of every candidate, which one is taken and why."""
    choice = selection.choose(collective, nbytes, size, allowed(collective), wire.links)
    heading = f"{collective} of {nbytes:,} bytes on {size} ranks"
    if wire.topology:
        lines = [heading, wire.text, "", *_simulated(collective, nbytes, size, wire.topology, choice.algorithm)]
        lines += ["", f"auto decides as if all links were like the slowest of these: it takes {choice.algorithm}."]
        return "\n".join(lines)
    found = candidates(collective, nbytes, size, wire, choice.predicted)
    n = nbytes or 1
    rows = [
        (
            ">" if one.name == choice.algorithm else "",
            one.name,
            _us(one.seconds),
            str(one.messages),
            digits(one.nbytes / n),
            digits(one.reduced / n),
        )
        for one in found
    ]
    bounds = cost.bounds(collective, nbytes, size, wire.links.alpha, wire.links.beta, wire.links.gamma)
    texts = [
        f"No algorithm takes less than {in_time(bounds.seconds)}: latency {in_time(bounds.latency)}, bandwidth "
        f"{in_time(bounds.bandwidth)}, arithmetic {in_time(bounds.arithmetic)}.",
        f"On these links auto takes {choice.algorithm}: {choice.reason}. "
        + _why(choice.algorithm, [one for one in found if one.name in allowed(collective)], n),
    ]
    if wire.sharp and collective == "allreduce":
        switched = links.in_network_allreduce(wire.sharp, nbytes, size)
        texts.append(f"Switches that reduce would take {in_time(switched)}: every rank sends (p-1)/p n once.")
    return "\n".join(
        [
            heading,
            *textwrap.wrap(wire.text, width, subsequent_indent="  "),
            "",
            *table(("", "", "predicted", "messages", "bytes / n", "reduced / n"), rows, "llrrrr"),
            "",
            *(line for text in texts for line in textwrap.wrap(text, width)),
        ]
    )


def time_text(figure: Figure, nbytes: int, wire: Wire) -> str:
    """How long the collective of a figure takes for so many bytes on these links."""
    counts, options = even(nbytes, figure.size), figure.options
    topology = wire.topology or links.uniform(links.Link("", wire.links.alpha, wire.links.beta), figure.size)
    gamma = wire.links.gamma_cached if nbytes <= selection.CACHED else wire.links.gamma
    timing = simulate(figure.collective, figure.algorithm, counts, 1, topology, gamma, figure.root, **options)
    return f"{nbytes:,} bytes take {in_time(timing.seconds)}, simulated on {wire.text}"


def _us(seconds: float) -> str:
    return f"{digits(seconds * 1e6)} us"


def _simulated(collective: str, nbytes: int, size: int, topology: links.Topology, auto: str) -> list[str]:
    """A line for each algorithm, the fastest first; hierarchical is told the nodes."""
    counts, found, unknown = even(nbytes, size), [], []
    for name in FAMILIES[collective]:
        options: dict[str, Any] = (
            {"nodes": [topology.node(rank) for rank in range(size)]} if name == "hierarchical" else {}
        )
        messages = sum(cost.of(collective, name, rank, counts, 1, **options).messages for rank in range(size))
        if messages > MESSAGES:
            unknown.append((name, f"{messages:,} messages: not simulated"))
            continue
        found.append((simulate(collective, name, counts, 1, topology, DEVICE.gamma, **options).seconds, name))
    rows = [(">" if name == auto else "", name, _us(seconds)) for seconds, name in sorted(found)]
    return table(("", "", "simulated"), [*rows, *(("", name, why) for name, why in unknown)], "llr")


def _why(name: str, found: Sequence[Candidate], nbytes: int) -> str:
    """What makes it the fastest: its messages one after the other, or its bytes."""
    own = next(one for one in found if one.name == name)
    few = min(found, key=lambda one: (one.messages, one.seconds))
    small = min(found, key=lambda one: (one.nbytes, one.seconds))
    messages, moved = f"{own.messages} messages one after the other", f"{digits(own.nbytes / nbytes)} n bytes"
    fewer = f"{few.name} has {few.messages} messages, but {digits(few.nbytes / nbytes)} n bytes"
    smaller = f"{small.name} has {digits(small.nbytes / nbytes)} n bytes, but {small.messages} messages"
    if few.messages == own.messages and small.nbytes == own.nbytes:
        return f"Nothing has fewer messages or fewer bytes than its {messages} and {moved}."
    if few.messages == own.messages:
        return f"Nothing has fewer than its {messages}; {smaller}: at this size latency decides."
    if small.nbytes == own.nbytes:
        return f"Nothing has fewer than its {moved}; {fewer}: at this size bandwidth decides."
    return f"It has {messages} and {moved}; {fewer}; {smaller}."
