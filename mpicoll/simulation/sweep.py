"""Many steps: over numbers of GPUs, and two ways to place a chatty collective on nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from . import fabric as fabrics
from .fabric import Fabric, Transfer
from .step import Job, Step, simulate


class Point(NamedTuple):
    """A number of GPUs: `weak` keeps the batch per GPU, `strong` the global batch, both from the fewest GPUs on."""

    size: int
    weak: Step
    strong: Step

    def speedup(self, first: Point) -> float:
        """Of strong scaling, over the first point's GPUs if they need not communicate."""
        return first.strong.gpu / self.strong.bounds["timeline"]


def scaling(job: Job, fabric: Sequence[Fabric]) -> list[Point]:
    """The steps on each fabric; `job` is that of a GPU on the first of them.

    Under strong scaling a GPU's computing time is divided, while its gradients and its memory's least time stay.
    """
    fewest = fabric[0].size
    return [Point(x.size, simulate(job, x), simulate(job.larger_batch(fewest / x.size), x)) for x in fabric]


class Placement(NamedTuple):
    """Groups of n GPUs that communicate in every layer, and n replicas of each, on n nodes of n GPUs.

    Attributes:
        where: "inside" nodes, or "across" them.
        chatty: the links' cost of all the layers' all-reduces, of which nothing is hidden: the next layer needs them.
        sync: of the gradients' all-reduce over the replicas, which have the other links.
        exposed: seconds of it that backward (2/3 of the computing time) cannot hide.
        step: seconds.
    """

    where: str
    chatty: Transfer
    sync: Transfer
    exposed: float
    step: float


def chatty(
    size: int, inside: str, across: str, nbytes: int, calls: int, gradients: float, compute: float
) -> list[Placement]:
    """The two placements, the chatty groups inside nodes and across them.

    Args:
        size: n, the GPUs of a node, of a group, and the number of nodes.
        inside, across: links as `links.parse` reads them.
        nbytes: of a chatty all-reduce.
        calls: how many of them a step has, one after the other.
        gradients: bytes of a GPU's gradients.
        compute: seconds of a step's forward and backward.

    Raises:
        ValueError: the links are unknown or do not join so many GPUs.
    """
    ends = {"inside": fabrics.build(inside, size), "across": fabrics.build(across, size)}
    placements = []
    for where, other in ("inside", "across"), ("across", "inside"):
        one, sync = ends[where].allreduce(nbytes), ends[other].allreduce(gradients)
        all_calls = Transfer(one.sent * calls, one.latency * calls, one.bandwidth * calls)
        exposed = max(0.0, sync.seconds - compute * 2 / 3)
        placements.append(Placement(where, all_calls, sync, exposed, compute + all_calls.seconds + exposed))
    return placements
