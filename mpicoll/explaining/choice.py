"""Which algorithm a call takes on given links, and why: the predicted time of every candidate, and where it changes."""

from __future__ import annotations

import math
import os
import platform
import textwrap
from typing import Any, NamedTuple

from .. import cost, links, selection, tuning
from ..algorithms import FAMILIES, SAME_LENGTH
from ..algorithms.cut import even
from ..cost import Wire
from ..pricing import DEVICE, HOST, Links
from ..rules import Rules
from ..simulation.text import table
from ..simulation.units import digits, in_time
from ..world.clock import simulate
from .candidates import candidates, why_fastest
from .figure import Figure

OWN = {"host": HOST, "device": DEVICE}  # what the library itself takes for NumPy's arrays, and for devices'
MESSAGES = 100_000  # more are not simulated


class Wiring(NamedTuple):
    """The links of a question.

    Attributes:
        links, nodes, text: for the model, the node of every rank, and in words.
        topology: if it has several levels; to the model the inner ones are the slowest of them.
        sharp: the link, if its switches reduce.
        rules: those of a tuning table.
    """

    links: Links
    nodes: tuple[int | str, ...]
    text: str
    topology: links.Topology | None = None
    sharp: links.Link | None = None
    rules: Rules | None = None

    @property
    def slowest(self) -> Wire:
        """That of all wires."""
        return (
            max(self.links.node, self.links.network, key=lambda wire: wire.beta) if self.topology else self.links.node
        )


def own(size: int) -> Wiring:
    """What a call takes on one node: links and rules of the tuning table, or without one "host".

    Raises:
        ValueError: the table cannot be read.
    """
    nodes = (0,) * size
    source = tuning.look()
    tuned = tuning.tuned(source, nodes, "", [platform.node()])
    if tuned is None:
        usual = wiring("host", size)
        return usual._replace(text=f"{usual.text}; {source.file} has no layouts") if source.file else usual
    return Wiring(tuned.links, nodes, _text("tuned", tuned.links, "as measured"), rules=tuned.rules)


def wiring(name: str, size: int) -> Wiring:
    """The links called `name`: "host" or "device", or what `links.parse` reads. Presets have a GPU's gamma.

    Raises:
        ValueError: there are none; the text lists those there are.
    """
    if name in OWN:
        found, counts = OWN[name], "as this library takes them"
        return Wiring(found, (0,) * size, _text(name, found, counts))
    try:
        topology = links.parse(name, size)
    except ValueError as error:
        raise ValueError(f"--links: {error}; or this library's own, {' and '.join(OWN)}") from None
    *inner, outer = topology.levels
    slowest = max((level.link for level in inner), key=lambda link: link.beta, default=outer.link)
    found = DEVICE._replace(
        node=Wire(slowest.alpha, slowest.beta),
        network=Wire(outer.link.alpha, outer.link.beta),
        shared=outer.nics == 1,
        segment=HOST.segment,
    )
    nodes = tuple(topology.node(rank) for rank in range(size))
    if not inner:
        return Wiring(found, nodes, _text(name, found, slowest.counts), sharp=slowest if slowest.sharp else None)
    return Wiring(found, nodes, name, topology)


def _text(name: str, found: Links, counts: str) -> str:
    cached = f" (from a cache {digits(found.gamma_cached * 1e12)})" if found.gamma_cached != found.gamma else ""
    wire = found.node
    rates = f"alpha {in_time(wire.alpha)}, 1/beta {digits(1e-9 / wire.beta)} GB/s"
    if not math.isinf(wire.eager):
        rates += f", in messages above {wire.eager:,} bytes {in_time(wire.alpha_long)}, "
        rates += f"{digits(1e-9 / wire.beta_long)} GB/s"
    return f"{name}: {rates} ({counts}), gamma {digits(found.gamma * 1e12)} ps/B{cached}"


def allowed(collective: str) -> tuple[str, ...]:
    """The algorithms that MPICOLL_ALGORITHM lets a call take."""
    return selection.parse(os.environ.get(selection.VARIABLE, ""))[collective]


def choice_text(collective: str, nbytes: int, size: int, wiring: Wiring, width: int) -> str:
    """The predicted time of every candidate, which one is taken and why."""
    choice = selection.choose(collective, nbytes, wiring.nodes, allowed(collective), wiring.links, wiring.rules)
    heading = f"{collective} of {nbytes:,} bytes on {size} ranks"
    if wiring.topology:
        lines = _simulated(collective, nbytes, size, wiring.topology, choice.algorithm)
        return "\n".join([heading, wiring.text, "", *lines, "", *wrapped(_classes(choice, wiring), width)])
    found = candidates(collective, nbytes, size, wiring.links, choice.predicted)
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
    rule = wiring.rules.find(collective, nbytes) if wiring.rules else None
    free = [one for one in found if one.name in allowed(collective)]
    why = "" if rule and rule.algorithm == choice.algorithm else why_fastest(choice.algorithm, free, wiring.links, n)
    bounds = cost.bounds(collective, nbytes, size, wiring.links.node.alpha, wiring.links.node.beta, wiring.links.gamma)
    parts = {"latency": bounds.latency, "bandwidth": bounds.bandwidth, "arithmetic": bounds.arithmetic}
    texts = [
        f"No algorithm takes less than {in_time(bounds.seconds)}: "
        + ", ".join(f"{name} {in_time(seconds, like=bounds.seconds)}" for name, seconds in parts.items())
        + ".",
        f"On these links auto takes {choice.algorithm}: {choice.reason}. {why}".rstrip(),
    ]
    if wiring.sharp and collective == "allreduce":
        switched = links.in_network_allreduce(wiring.sharp, nbytes, size)
        texts.append(f"Switches that reduce would take {in_time(switched)}: every rank sends (p-1)/p n once.")
    return "\n".join(
        [
            heading,
            *wrapped(wiring.text, width, "  "),
            "",
            *table(("", "", "predicted", "messages", "bytes / n", "reduced / n"), rows, "llrrrr"),
            "",
            *(line for text in texts for line in wrapped(text, width)),
        ]
    )


def wrapped(text: str, width: int, indent: str = "") -> list[str]:
    """Lines, in which the name of a file stays whole."""
    return textwrap.wrap(text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def time_text(figure: Figure, nbytes: int, wiring: Wiring) -> str:
    """How long the collective of a figure takes for so many bytes on these links."""
    counts, options = even(nbytes, figure.size), figure.options
    topology = wiring.topology or links.uniform(cost.link_of("", wiring.links.node), figure.size)
    gamma = wiring.links.rate(nbytes)
    timing = simulate(figure.collective, figure.algorithm, counts, 1, topology, gamma, figure.root, **options)
    return f"{nbytes:,} bytes take {in_time(timing.seconds)}, simulated on {wiring.text}"


def _us(seconds: float) -> str:
    return f"{digits(seconds * 1e6)} us"


def _simulated(collective: str, nbytes: int, size: int, topology: links.Topology, auto: str) -> list[str]:
    """Lines for each algorithm, the fastest first: its time, and what the busiest rank sends over each level's links;
    hierarchical is told the nodes."""
    found, unknown = [], []
    for name in FAMILIES[collective]:
        counts = even(-(-nbytes // size) * size if (collective, name) in SAME_LENGTH else nbytes, size)
        options: dict[str, Any] = (
            {"nodes": [topology.node(rank) for rank in range(size)]} if name == "hierarchical" else {}
        )
        messages = sum(cost.of(collective, name, rank, counts, 1, **options).messages for rank in range(size))
        if messages > MESSAGES:
            unknown.append(["", name, "", f"{messages:,} messages: not simulated", "", "", ""])
            continue
        seconds = simulate(collective, name, counts, 1, topology, DEVICE.gamma, **options).seconds
        ranks = cost.crossed(topology, collective, name, counts, 1, **options)
        busiest = [max(level, key=lambda crossed: crossed.seconds) for level in zip(*ranks, strict=True)]
        found.append((seconds, name, busiest))
    rows = []
    for seconds, name, busiest in sorted(found):
        first = [">" if name == auto else "", name, _us(seconds)]
        for level, crossed in zip(topology.levels, busiest, strict=True):
            moved, took = digits(crossed.nbytes / (nbytes or 1)), _us(crossed.seconds)
            rows.append([*first, level.link.name, str(crossed.messages), moved, took])
            first = ["", "", ""]
    header = ("", "", "simulated", "link", "sends", "bytes / n", "in")
    return table(header, [*rows, *unknown], "llrlrrr")


def _classes(choice: selection.Choice, wiring: Wiring) -> str:
    """What the table says, how auto sees links of several levels, and what it takes."""
    assert wiring.topology
    *inner, outer = (level.link.name for level in wiring.topology.levels)
    slowest = " (all like the slowest)" if len(inner) > 1 else ""
    way = "one NIC for a node" if wiring.links.shared else "a NIC for each rank"
    return (
        f"Of each kind of link: what the rank that sends the most over it sends, and how long that takes, one message "
        f"after the other. auto tells two kinds apart, in a node{slowest} and between nodes ({outer}, {way}), and "
        f"takes {choice.algorithm}: {choice.reason}."
    )
