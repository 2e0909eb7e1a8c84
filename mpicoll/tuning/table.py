"""What was measured, by the layout of the ranks, and what that says to ranks in some layout."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from ..cost import Wire
from ..pricing import HOST, Links
from ..rules import Rule, Rules

SCHEMA = 1


class Measured(NamedTuple):
    """Links as measured; node or network is None where no two ranks were on one node, or on different ones."""

    node: Wire | None
    network: Wire | None
    shared: bool
    gamma: float
    gamma_cached: float
    segment: int

    @property
    def links(self) -> Links:
        """With the usual wires where none were measured."""
        return Links(**{**self._asdict(), "node": self.node or HOST.node, "network": self.network or HOST.network})


class Entry(NamedTuple):
    """What was measured with ranks in one layout.

    Attributes:
        mpi, host, date: with which MPI, on rank 0's host, when.
        links: between these ranks.
        copied: the sizes in bytes from which and up to which a reduction goes by way of fresh memory; see arrays.py.
        rules: for each collective that was measured the Rules of its sizes.
    """

    mpi: str
    host: str
    date: str
    links: Measured
    copied: tuple[int, int]
    rules: dict[str, tuple[Rule, ...]]


def layout(nodes: Sequence[int]) -> str:
    """The key of ranks on these nodes: ranks of each node, "2+2", or if these are not neighbours, all nodes: "0,1,0,1".

    Args:
        nodes: the number of every rank's node, counted by lowest rank.
    """
    if list(nodes) == sorted(nodes):
        return "+".join(str(nodes.count(node)) for node in range(nodes[-1] + 1))
    return ",".join(map(str, nodes))


def _ranks_and_nodes(key: str) -> tuple[int, int]:
    if "," in key:
        return key.count(",") + 1, len(set(key.split(",")))
    return sum(map(int, key.split("+"))), key.count("+") + 1


class Tuned(NamedTuple):
    """What a table says to ranks in some layout.

    Attributes:
        links: as measured there; if that layout was not measured, in the one most like it.
        rules: that layout's, or no rules.
        entry: what was measured.
    """

    links: Links
    rules: Rules
    entry: Entry


def decide(entries: dict[str, Entry], nodes: Sequence[int], file: str, mpi: str, hosts: Sequence[str]) -> Tuned | None:
    """What the table of these entries, read from `file`, says to ranks on these nodes; None if it is empty.

    Args:
        mpi, hosts: of the ranks, to be told where they are not those of the table; "" for an MPI that is not known.
    """
    if not entries:
        return None
    key, size, many = layout(nodes), len(nodes), len(set(nodes)) > 1

    def unlike(other: str) -> tuple[bool, bool, float]:
        ranks, others = _ranks_and_nodes(other)
        return other != key, (others > 1) != many, abs(math.log(ranks / size))

    nearest = min(entries, key=unlike)
    entry = entries[nearest]
    links = entry.links.links
    measured = f"measured on {entry.host} with {entry.mpi} on {entry.date}"
    if entry.host not in hosts or mpi not in ("", entry.mpi):
        measured += f" (this is {' with '.join(filter(None, (hosts[0], mpi)))})"
    if nearest == key:
        return Tuned(links, Rules(f"{file}, layout {key}, {measured}", entry.rules), entry)
    return Tuned(links, Rules(f"{file}, which has no layout {key}, but {nearest}, {measured}", {}), entry)
