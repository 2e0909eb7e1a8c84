"""What one rank does, counted; what a message takes; the parts of which most closed forms are made."""

from __future__ import annotations

import math
from typing import NamedTuple


class Wire(NamedTuple):
    """What a message between two ranks takes, in two regimes, as an MPI sends short ones at once and asks before long
    ones (its counterpart of NCCL's protocols LL and Simple).

    Attributes:
        alpha, beta: seconds for a message of up to `eager` bytes, and for a byte of it.
        eager: bytes; by default there is one regime.
        alpha_long, beta_long: the same for longer messages.
    """

    alpha: float
    beta: float
    eager: float = math.inf
    alpha_long: float = 0
    beta_long: float = 0

    def rates(self, nbytes: float) -> tuple[float, float]:
        """alpha and beta of a message of so many bytes."""
        return (self.alpha, self.beta) if nbytes <= self.eager else (self.alpha_long, self.beta_long)


class Cost(NamedTuple):
    """What one rank does.

    Attributes:
        rounds: yields with a message of its own.
        messages, sent: messages and bytes sent.
        reduced: bytes reduced.
        port_messages, port_bytes: messages and bytes in the busier direction of its port, sent or received, summed over
            rounds; a rank has one port, and each of its directions carries one message at a time.
    """

    rounds: int = 0
    messages: int = 0
    sent: int = 0
    reduced: int = 0
    port_messages: int = 0
    port_bytes: int = 0

    def __add__(self, other: Cost) -> Cost:  # type: ignore[override]  # a sum, not tuple's concatenation
        return Cost(*(a + b for a, b in zip(self, other, strict=True)))


def time(cost: Cost, alpha: float, beta: float, gamma: float) -> float:
    """The seconds for which a rank's port and its reductions are busy, one after the other.

    Args:
        alpha, beta: seconds for a message and for a byte through the port, which is full duplex.
        gamma: seconds for a byte reduced; all are counted, also those that an algorithm hides behind its messages.
    """
    return cost.port_messages * alpha + cost.port_bytes * beta + cost.reduced * gamma


def time_on(cost: Cost, wire: Wire, gamma: float) -> float:
    """`time` on a wire, in the regime of the mean message."""
    return time(cost, *wire.rates(cost.port_bytes / max(cost.port_messages, 1)), gamma)


def one_by_one(n: int, sends: int = 0, receives: int = 0, reduces: int = 0) -> Cost:
    """So many rounds, each with one message of n bytes out or in or both, and so many of those received are reduced."""
    rounds = max(sends, receives)
    return Cost(rounds, sends, sends * n, reduces * n, rounds, rounds * n)


def all_at_once(messages: int, nbytes: int) -> Cost:
    """One round with so many messages out, nbytes in all."""
    return Cost(int(messages > 0), messages, nbytes, 0, messages, nbytes)
