"""What was found, for people."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..cost import Wire
from ..rules import Rule, Rules, binary, in_words
from ..simulation.text import table
from ..simulation.units import digits, in_time
from . import fit
from .ranges import TIE
from .run import Check, Found, Times


def summary(found: Found) -> list[str]:
    """Links, local reduction and segments; for each collective its rules; how well the model predicts."""
    return [*_links(found), "", *_rules(found), "", *_checks(found.checks)]


def _links(found: Found) -> list[str]:
    links = found.entry.links
    rows = []
    for name, wire in (("same node", links.node), ("other node", links.network)):
        if wire is None:
            continue
        rows.append((name, _upto(wire), in_time(wire.alpha), _rate(wire.beta)))
        if not math.isinf(wire.eager):
            rows.append(("", f"above {binary(int(wire.eager))}", in_time(wire.alpha_long), _rate(wire.beta_long)))
    start, stop = found.entry.copied
    copied = f"from {binary(start)} to {binary(stop)} by way of fresh memory" if stop else "always in place"
    return [
        *table(("links", "messages", "alpha", "1/beta"), rows, "llrr"),
        *(["The ranks of a node share one way out."] if links.shared else []),
        f"reduction: {_rate(links.gamma)} from memory, {_rate(links.gamma_cached)} from a cache; {copied}",
        f"segments of pipelines: {binary(links.segment)}",
    ]


def _upto(wire: Wire) -> str:
    return "all" if math.isinf(wire.eager) else f"up to {binary(int(wire.eager))}"


def _rate(beta: float) -> str:
    return f"{digits(1e-9 / beta)} GB/s" if beta > fit.FASTEST else "-"


def _rules(found: Found) -> list[str]:
    """A line for each rule, and what the model alone would take in its range where that is slower."""
    rows = []
    for collective, rules in found.entry.rules.items():
        against = slower(rules, found.times[collective], found.alone[collective])
        for i, (where, rule) in enumerate(zip(in_words(rules), rules, strict=True)):
            rows.append(("" if i else collective, where, rule.algorithm, against[i]))
    return table(("collective", "bytes", "the fastest", "the model alone"), rows, "llll")


def slower(rules: tuple[Rule, ...], times: Times, alone: dict[int, str]) -> list[str]:
    """For each rule what the model alone takes at the size of its range where it loses most: "tree, 1.31 x at 1 KiB".

    "as fast" if it takes the same, or what is not slower.
    """
    found, worst = Rules("", {"": rules}), dict.fromkeys(rules, (1.0, 0, ""))
    for nbytes, name in alone.items():
        rule = found.find("", nbytes)
        assert rule is not None
        worst[rule] = max(worst[rule], (times[nbytes][name] / times[nbytes][rule.algorithm], nbytes, name))
    return [
        f"{name}, {ratio:.2f} x at {binary(nbytes)}" if ratio > 1 + TIE else "as fast"
        for ratio, nbytes, name in worst.values()
    ]


def _checks(checks: Sequence[Check]) -> list[str]:
    if not checks:
        return []
    rows = [
        (
            check.collective,
            binary(check.nbytes),
            check.algorithm,
            in_time(check.predicted),
            in_time(check.measured),
            f"{check.predicted / check.measured:.2f}",
        )
        for check in checks
    ]
    worst = max(checks, key=lambda check: fit.error(check.predicted, check.measured))
    middle = sorted(fit.error(check.predicted, check.measured) for check in checks)[len(checks) // 2]
    return [
        "The model against times that it has not seen:",
        *table(("collective", "bytes", "algorithm", "predicted", "measured", "ratio"), rows, "lrlrrr"),
        f"Off by {middle:.0%} (median); at worst by {fit.error(worst.predicted, worst.measured):.0%}: "
        f"{worst.collective} of {binary(worst.nbytes)}.",
    ]
