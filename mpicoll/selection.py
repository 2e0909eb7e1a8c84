"""Which algorithm performs a call; it depends only on what all ranks share: collective, bytes, nodes, kind of links.

The one named by the call's `algorithm` argument is taken, strictly. Otherwise it is one of those that MPICOLL_ALGORITHM
allows: the one that a tuning table names for calls of this size (`tuning`), or without such a rule the one for which
the cost model predicts the shortest time, by closed forms on one node, by the simulation where ranks are in several
(`pricing`). The links are those of device arrays, and no table counts, if rank 0's program had loaded CuPy when the
communicator was made, whatever arrays a call then gets.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from . import cost
from .algorithms import COLLECTIVES, FAMILIES, in_order, parameters
from .cost import Cost
from .language import Algorithm
from .pricing import CLOSE, DEVICE, HOST, Links, Nodes, Prices, across, base, family, options_of, rounded
from .rules import Rule, Rules

__all__ = [
    "DEVICE",
    "HOST",
    "VARIABLE",
    "Choice",
    "Links",
    "Nodes",
    "choose",
    "chosen",
    "cost_of",
    "family",
    "forced",
    "function",
    "parse",
]

VARIABLE = "MPICOLL_ALGORITHM"


class Choice(NamedTuple):
    """The algorithm of a call, and why.

    Attributes:
        algorithm: its name.
        reason: one sentence.
        predicted: the model's time in seconds for each algorithm of the collective; an empty dict if nothing was
            compared.
        least: those of which this time is only a bound: they take longer than the chosen one.
        scaled: those of which a smaller job was simulated, as the whole one would have kept the first call waiting.
    """

    algorithm: str
    reason: str
    predicted: dict[str, float]
    least: frozenset[str] = frozenset()
    scaled: frozenset[str] = frozenset()

    def __str__(self) -> str:
        times = [
            f"\n  {name:<20}{seconds * 1e6:12.1f} us predicted{', at least' * (name in self.least)}"
            f"{', from a smaller job' * (name in self.scaled)}"
            for name, seconds in self.predicted.items()
        ]
        return f"{self.algorithm}: {self.reason}{''.join(times)}"


def parse(text: str) -> dict[str, tuple[str, ...]]:
    """For each collective the algorithms that `text` allows, in NCCL_ALGO's grammar; alltoallv has alltoall's part.

    `[collective:][^]name,name;...`: a part without a collective is for all that have no part of their own; ^ allows all
    but the names; upper and lower case are the same. "" allows everything.

    Raises:
        ValueError: a collective or an algorithm does not exist, or a collective has two parts.
    """
    known = sorted({name for names in FAMILIES.values() for name in names})
    parts: dict[str, tuple[bool, list[str]]] = {}
    for part in filter(None, text.lower().replace(" ", "").split(";")):
        collective, colon, names = part.rpartition(":")
        collective = base(collective)
        if colon and collective not in FAMILIES:
            raise ValueError(
                f"{VARIABLE}: {collective!r} in {text!r} is no collective; there are {', '.join(COLLECTIVES)}"
            )
        if collective in parts:
            raise ValueError(f"{VARIABLE}: {text!r} has two parts for {collective or 'all collectives'}")
        there = list(FAMILIES[collective]) if colon else known
        exclude, listed = names.startswith("^"), names.removeprefix("^").split(",")
        for name in listed:
            if name not in there:
                of = f" of {collective}" if colon else ""
                raise ValueError(f"{VARIABLE}: {name!r} in {text!r} is no algorithm{of}; there are {', '.join(there)}")
        parts[collective] = (exclude, listed)
    exclude, listed = parts.get("", (True, []))
    return {
        collective: tuple(name for name in family(collective) if (name in own) != but)
        for collective in (*FAMILIES, "alltoallv")
        for but, own in [parts.get(base(collective), (exclude, listed))]
    }


@functools.lru_cache(maxsize=1024)
def choose(
    collective: str,
    nbytes: int,
    nodes: tuple[int, ...],
    allowed: tuple[str, ...],
    links: Links = HOST,
    rules: Rules | None = None,
) -> Choice:
    """The Choice for a buffer of `nbytes` bytes, of the `allowed` names; nodes[r] is the number of rank r's node.

    The rule of a tuning table decides if there is one and its algorithm is allowed, else the model.

    Raises:
        ValueError: nothing is allowed.
    """
    names = family(collective)
    if not allowed:
        raise ValueError(
            f"{collective}: {VARIABLE} allows none of its algorithms {', '.join(names)}; add "
            f"';{collective}:{next(iter(names))}' to it"
        )
    size, count = len(nodes), len(set(nodes))
    if count == 1:
        prices = Prices({name: links.predict(collective, name, nbytes, size) for name in names})
    else:
        prices = across(collective, rounded(nbytes), tuple(sorted(nodes)), allowed, links)  # see `function`
    predicted, least, scaled, partners = prices
    rule = _rule(collective, nbytes, allowed, rules)
    if rule and rules:
        reason = f"the fastest as measured, {rules.range_of(collective, nbytes)}: {rules.source}"
        return Choice(rule.algorithm, reason, predicted, least, scaled)
    best = fastest = min(allowed, key=predicted.__getitem__)
    if partners:
        # Ranks that change partners drift apart, two then send to one, and the clock does not know what that costs on
        # a real network: on 4 hosts pairwise took 1.2 to 1.4 times as long as a ring that it predicts to be equal.
        close = [name for name in allowed if predicted[name] <= CLOSE * predicted[fastest]]
        best = min(close, key=lambda name: (partners[name], predicted[name]))
    of = " of a program with devices" if links is DEVICE else ""
    about = f" (rounded to {rounded(nbytes)})" if count > 1 and rounded(nbytes) != nbytes else ""
    where = f" in {count} nodes" if count > 1 else ""
    reason = f"the shortest predicted time for {nbytes} bytes{about} on {size} ranks{where}{of}"
    if len(allowed) < len(names):
        reason += f", of those that {VARIABLE} allows ({', '.join(allowed)})"
    if rules:
        reason += f", on the links of {rules.source}"
    if best != fastest:
        reason = (
            f"within {CLOSE - 1:.0%} of {reason}, that of {fastest}, in which a node sends to or hears from "
            f"{partners[fastest]} others, not {partners[best]}"
        )
    if scaled & {best, fastest}:
        reason += "; the time is scaled from a smaller job's"
    return Choice(best, reason, predicted, least, scaled)


@functools.lru_cache(maxsize=1024)
def chosen(
    collective: str,
    nbytes: int,
    nodes: tuple[int, ...],
    allowed: tuple[str, ...],
    links: Links,
    rules: Rules | None = None,
) -> Callable[..., Algorithm]:
    """The function of the algorithm that `choose` names, with its options; arguments as of `choose`."""
    rule = _rule(collective, nbytes, allowed, rules)  # then nothing has to be predicted
    name = (rule or choose(collective, nbytes, nodes, allowed, links)).algorithm
    return function(collective, name, nbytes, nodes, links)


def _rule(collective: str, nbytes: int, allowed: tuple[str, ...], rules: Rules | None) -> Rule | None:
    """The rule that decides; None: the model does."""
    rule = rules.find(collective, nbytes) if rules else None
    return rule if rule and rule.algorithm in allowed else None


@functools.lru_cache(maxsize=1024)
def function(
    collective: str, algorithm: str, nbytes: int, nodes: tuple[int, ...], links: Links
) -> Callable[..., Algorithm]:
    """The function of an algorithm, with its options; nodes[r] is the number of rank r's node.

    It counts the ranks node by node, if it does not look at the nodes itself.
    """
    found, options = family(collective)[algorithm], options_of(collective, algorithm, nbytes, nodes, links)
    if order := machine_order(nodes, options):
        found = in_order(found, order)
    return functools.partial(found, **options) if options else found


def machine_order(nodes: tuple[int, ...], options: dict[str, Any]) -> tuple[int, ...] | None:
    """The ranks node by node; None: they are so already, or the algorithm with these options looks at the nodes."""
    if "nodes" in options or nodes == tuple(sorted(nodes)):
        return None
    return tuple(sorted(range(len(nodes)), key=nodes.__getitem__))


def cost_of(
    collective: str,
    algorithm: str,
    rank: int,
    counts: Sequence[int],
    itemsize: int,
    root: int,
    nodes: tuple[int, ...],
    links: Links,
) -> Cost:
    """What `function` costs this rank, by the closed forms; arguments as of `cost.of`."""
    options = options_of(collective, algorithm, sum(counts) * itemsize, nodes, links)
    order = machine_order(nodes, options) or range(len(nodes))
    if {"chunks", "result_chunks"} & set(parameters(family(collective)[algorithm])):
        counts = [counts[r] for r in order]
    return cost.of(base(collective), algorithm, order.index(rank), counts, itemsize, order.index(root), **options)


def forced(collective: str, algorithm: object) -> Choice:
    """The Choice if the call names its algorithm.

    Raises:
        ValueError: there is no such algorithm for this collective; the message lists those there are.
    """
    names = family(collective)
    if not isinstance(algorithm, str) or algorithm not in names:
        known = isinstance(algorithm, str) and algorithm in FAMILIES[base(collective)]
        why = ", which needs chunks of one length" if known else ""
        raise ValueError(f"{collective}: algorithm is {algorithm!r}{why}; there are {', '.join(map(repr, names))}")
    return Choice(algorithm, "the call names it", {})
