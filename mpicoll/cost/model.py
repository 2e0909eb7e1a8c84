"""What one rank does, counted; the parts of which most closed forms are made."""

from __future__ import annotations

from typing import NamedTuple


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


def one_by_one(n: int, sends: int = 0, receives: int = 0, reduces: int = 0) -> Cost:
    """So many rounds, each with one message of n bytes out or in or both, and so many of those received are reduced."""
    rounds = max(sends, receives)
    return Cost(rounds, sends, sends * n, reduces * n, rounds, rounds * n)


def all_at_once(messages: int, nbytes: int) -> Cost:
    """One round with so many messages out, nbytes in all."""
    return Cost(int(messages > 0), messages, nbytes, 0, messages, nbytes)
