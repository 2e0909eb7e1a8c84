"""The links between the ranks: times of messages on one node and between nodes, and whether a node's ranks share."""

from __future__ import annotations

from typing import Any

from ..cost import Wire
from . import exchange, fit
from .timing import Probe, Watch

LENGTHS = (8, 64, 512, *(1 << power for power in range(10, 23)))  # bytes of a message: to 4 MiB, above it is cut
LONG = 1 << 20  # bytes by which ranks that share a way out are told
SHARED = 1.5  # times as long as alone


class Wires:
    """The wires as the ranks use them: all at the same time on one node, and one rank of each node between nodes."""

    def __init__(self, comm: Any) -> None:
        members = [[rank for rank, at in enumerate(comm.nodes) if at == node] for node in range(max(comm.nodes) + 1)]
        self._node = self._network = self._sharing = None
        if max(map(len, members)) > 1:
            self._node = Probe(LENGTHS, lambda nbytes: exchange.maker(comm, members[comm.node], nbytes))
        if len(members) > 1:
            first = [ranks[0] for ranks in members]
            self._network = Probe(LENGTHS, lambda nbytes: exchange.maker(comm, first, nbytes))
            rows = list(zip(*members, strict=False))  # the ranks that are first on their nodes, second, ...
            if len(rows) > 1:
                own = list(rows[comm.local_rank]) if comm.local_rank < len(rows) else []
                self._sharing = Probe((False, True), lambda all_: exchange.maker(comm, own if all_ else first, LONG))

    def lap(self, watch: Watch) -> None:
        """All are measured, once more."""
        for probe in (self._node, self._network, self._sharing):
            if probe:
                probe.lap(watch)

    @property
    def node(self) -> Wire | None:
        """The Wire on one node; None if no two ranks are."""
        return _fitted(self._node) if self._node else None

    @property
    def network(self) -> Wire | None:
        """The Wire between nodes; None if there is one."""
        return _fitted(self._network) if self._network else None

    @property
    def shared(self) -> bool:
        """Whether the ranks of a node share one way out of it."""
        times = self._sharing.times if self._sharing else {False: 1.0, True: 1.0}
        return times[True] > SHARED * times[False]


def _fitted(probe: Probe[int]) -> Wire:
    return fit.wire({nbytes: seconds / exchange.ROUNDS for nbytes, seconds in probe.times.items()})
