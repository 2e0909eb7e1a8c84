"""Of what the predicted times of algorithms are made, and why one of them is the fastest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .. import cost
from ..algorithms.cut import even
from ..pricing import Links
from ..simulation.units import digits
from .text import plural


class Candidate(NamedTuple):
    """An algorithm's predicted time in seconds, and of what it is made: messages one after the other, bytes, ..."""

    name: str
    seconds: float
    messages: int
    nbytes: int
    reduced: int


MANY = 1 << 80  # more than any number of bytes


def candidates(collective: str, nbytes: int, size: int, links: Links, predicted: dict[str, float]) -> list[Candidate]:
    """The algorithms of the collective with their `predicted` times, the fastest first."""
    found = []
    for name, seconds in predicted.items():
        options = links.options(collective, name, nbytes, size)
        # One number in which messages, bytes and bytes reduced can be told apart.
        parts = int(cost.predict(collective, name, even(nbytes, size), 1, MANY * MANY, MANY, 1, **options))
        found.append(Candidate(name, seconds, parts // MANY // MANY, parts // MANY % MANY, parts % MANY))
    return sorted(found, key=lambda candidate: candidate.seconds)


# Of a quantity: how a little and a lot of it are told, and what decides where it does.
QUANTITIES = {
    "messages": ("fewer messages ({})", "more messages ({})", "latency decides"),
    "nbytes": ("fewer bytes ({} n)", "more bytes ({} n)", "bandwidth decides"),
    "reduced": ("less to reduce ({} n)", "more to reduce ({} n)", "the reduction decides"),
}


def why_fastest(name: str, found: Sequence[Candidate], links: Links, n: int) -> str:
    """What makes it the fastest of those that are allowed: whoever has less of something loses more by another."""
    own = next(one for one in found if one.name == name)
    rivals: dict[str, tuple[Candidate, str]] = {}
    for quantity in QUANTITIES:
        least = min(found, key=lambda one: (getattr(one, quantity), one.seconds))
        if getattr(least, quantity) < getattr(own, quantity):
            rivals.setdefault(least.name, (least, quantity))
    if len(found) == 1:
        return ""
    has = f"{plural(own.messages, 'message')} one after the other"
    if own.nbytes:
        has += f", {digits(own.nbytes / n)} n bytes"
    if any(one.reduced for one in found):
        has += f" and {digits(own.reduced / n)} n to reduce"
    if not rivals:
        return f"Nothing has less than its {has}."
    mine, told, deciding = _parts(own, links, n), [], set()
    for rival, less in rivals.values():
        theirs = _parts(rival, links, n)
        more = max(QUANTITIES, key=lambda quantity: theirs[quantity] - mine[quantity])
        deciding.add(QUANTITIES[more][2])
        amounts = [_amount(rival, quantity, n) for quantity in (less, more)]
        told.append(
            f"{rival.name} has {QUANTITIES[less][0].format(amounts[0])}, but {QUANTITIES[more][1].format(amounts[1])}"
        )
    verdict = f": at this size {deciding.pop()}" if len(deciding) == 1 else ""
    return f"It has {has}; {'; '.join(told)}{verdict}."


def _parts(one: Candidate, links: Links, nbytes: int) -> dict[str, float]:
    """The seconds that each quantity takes, as the model has it."""
    alpha, beta = links.node.rates(one.nbytes / max(one.messages, 1))
    gamma = links.rate(nbytes)
    return {"messages": one.messages * alpha, "nbytes": one.nbytes * beta, "reduced": one.reduced * gamma}


def _amount(one: Candidate, quantity: str, n: int) -> str:
    return str(one.messages) if quantity == "messages" else digits(getattr(one, quantity) / n)
