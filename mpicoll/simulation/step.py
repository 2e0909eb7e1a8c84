"""One data-parallel step, simulated: backward makes gradients, buckets fill, all-reduces follow one another.

    GPU       forward        backward: last layer first
    network                     bucket 0  bucket 1  bucket 2 |  exposed

Buckets are those of training/reducer.py, launched in order; one all-reduce at a time has the links. The optimizer's
step is not drawn: count it in the computing time if it matters.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import NamedTuple

from ..algorithms.cut import even
from ..training.buckets import assign
from .fabric import Fabric

HIDDEN = 0.05  # of a step: communication that is exposed for no more does not count


class Job(NamedTuple):
    """What every GPU does in a step.

    Attributes:
        layers: parameters of each layer, in forward order.
        tensors: how many equal parameters (arrays) a layer has.
        itemsize: bytes of a gradient's element.
        forward: seconds.
        backward: seconds for each layer, in forward order.
        memory: seconds that the step's bytes take through the GPU's memory at least.
        bucket_cap_mb, first_bucket_mb: MiB, as the reducer has them.
    """

    layers: Sequence[int]
    tensors: int
    itemsize: int
    forward: float
    backward: Sequence[float]
    memory: float
    bucket_cap_mb: float = 25
    first_bucket_mb: float = 1

    @property
    def compute(self) -> float:
        return self.forward + sum(self.backward)

    @property
    def nbytes(self) -> int:
        """Of all gradients."""
        return sum(self.layers) * self.itemsize

    def larger_batch(self, factor: float) -> Job:
        """The same with so many times the samples: computing grows with them, the state does not."""
        return self._replace(forward=self.forward * factor, backward=[x * factor for x in self.backward])


class Bucket(NamedTuple):
    """Seconds since the step began: when its last gradient was ready, and its all-reduce started and stopped."""

    nbytes: int
    ready: float
    start: float
    stop: float


class Step(NamedTuple):
    """What happened.

    Attributes:
        gpu: seconds that the GPU computes, or waits for its memory if that is slower; alone it would take no longer.
        forward: seconds of it.
        layers: for each layer the seconds at which its backward starts and stops; in forward order.
        latency, bandwidth: seconds of all all-reduces; sent: bytes that a GPU sends.
    """

    job: Job
    fabric: Fabric
    gpu: float
    forward: float
    layers: list[tuple[float, float]]
    buckets: list[Bucket]
    latency: float
    bandwidth: float
    sent: float

    @property
    def network(self) -> float:
        """Seconds of all all-reduces, one after the other."""
        return self.latency + self.bandwidth

    @property
    def bounds(self) -> dict[str, float]:
        """Seconds of the step: `max` if everything overlaps, `sum` if nothing does, and between them `timeline`."""
        return {
            "max": max(self.gpu, self.network),
            "timeline": max([self.gpu, *(bucket.stop for bucket in self.buckets)]),
            "sum": self.job.compute + self.job.memory + self.network,
        }

    @property
    def exposed(self) -> float:
        """Seconds at the end in which the GPU only waits for the network."""
        return self.bounds["timeline"] - self.gpu

    @property
    def efficiency(self) -> float:
        """Throughput of N GPUs by N times that of one."""
        return self.gpu / self.bounds["timeline"]

    @property
    def limit(self) -> str:
        """Which of the three would take longest alone: "compute", "memory" or "network"."""
        alone = {"compute": self.job.compute, "memory": self.job.memory, "network": self.network}
        return max(alone, key=alone.__getitem__)

    @property
    def waits_for_memory(self) -> bool:
        """Whether the GPU's memory, not its computing, sets its time."""
        return self.job.memory > self.job.compute

    @property
    def verdict(self) -> str:
        """What the timeline waits for: the network if that alone takes longer than the GPU, and by what of it.

        Else the GPU, and the share of the step for which it waits, if that is more than HIDDEN.
        """
        if self.exposed <= HIDDEN * self.bounds["timeline"] or self.network <= self.gpu:
            waits = self.exposed / self.bounds["timeline"]
            gpu = f"{'memory' if self.waits_for_memory else 'compute'}-bound"
            return gpu if waits <= HIDDEN else f"{gpu}, {waits * 100:.0f} % exposed"
        return f"network-bound, by {'latency' if self.latency > self.bandwidth else 'bandwidth'}"


def simulate(job: Job, fabric: Fabric) -> Step:
    """The step of `job` on the GPUs of `fabric`."""
    gpu = max(job.compute, job.memory)
    slow = gpu / job.compute  # a GPU that waits for its memory does so everywhere
    layers, ready = _backward(job, slow)
    tensors = [
        SimpleNamespace(data=SimpleNamespace(nbytes=count * job.itemsize, dtype=job.itemsize), ready=at)
        for (count, at) in ready
    ]
    allreduce = functools.cache(fabric.allreduce)  # many buckets are alike
    buckets: list[Bucket] = []
    latency = bandwidth = sent = free = 0.0
    for part in assign(tensors, job.bucket_cap_mb, job.first_bucket_mb):  # type: ignore[no-untyped-call]
        nbytes, full = sum(p.data.nbytes for p in part), max(p.ready for p in part)
        transfer = allreduce(nbytes)
        start = max(full, free)
        free = start + transfer.seconds
        buckets.append(Bucket(nbytes, full, start, free))
        latency, bandwidth = latency + transfer.latency, bandwidth + transfer.bandwidth
        sent += transfer.sent
    if fabric.size == 1:
        buckets = []
    return Step(job, fabric, gpu, job.forward * slow, layers, buckets, latency, bandwidth, sent)


def _backward(job: Job, slow: float) -> tuple[list[tuple[float, float]], list[tuple[int, float]]]:
    """When each layer's backward starts and stops, and of every tensor its elements and when its gradient is ready."""
    layers: list[tuple[float, float]] = []
    ready: list[tuple[int, float]] = []
    now = job.forward * slow
    for count, seconds in zip(reversed(job.layers), reversed(job.backward), strict=True):
        stop = now + seconds * slow
        layers.append((now, stop))
        pieces = even(count, job.tensors)
        ready += [(piece, now + (i + 1) / job.tensors * (stop - now)) for i, piece in enumerate(reversed(pieces))]
        now = stop
    return layers[::-1], ready[::-1]


class Change(NamedTuple):
    """Something else to try, and what the step is then."""

    name: str
    step: Step


def changes(step: Step) -> list[Change]:
    """What could be changed, each alone, and the step then."""
    job, fabric, last = step.job, step.fabric, step.fabric.levels[-1].link
    tried: list[tuple[str, Job, Fabric]] = []
    known = fabric.algorithm in ("ring", "hierarchical") and fabric.size > 1
    own_port = not last.per_node and last.kind != "pcie"
    if known:
        example = " (XDR for NDR)" if round(last.bandwidth) == 50e9 else ""
        tried.append((f"links twice as fast, {2e-9 / last.beta:g} GB/s{example}", job, fabric.faster(2)))
    if known and own_port and not last.sharp:
        tried.append(("the switches add (SHARP)", job, fabric.in_network()))
    if job.itemsize > 1 and fabric.size > 1:
        half = job._replace(itemsize=job.itemsize // 2)
        example = "FP8 for BF16" if half.itemsize == 1 else "BF16 for FP32"
        tried.append((f"gradients of {half.itemsize} B ({example})", half, fabric))
    for factor in _larger_batches(step):
        tried.append((f"{factor:g} times the batch per GPU", job.larger_batch(factor), fabric))
    if step.latency > step.network / 20:
        cap = round(4 * max(job.bucket_cap_mb, max(bucket.nbytes for bucket in step.buckets) / 2**20))
        tried.append((f"buckets of {cap} MiB", job._replace(bucket_cap_mb=cap), fabric))
    one_link = len(fabric.levels) == 1 and last.kind == "network" and own_port
    if one_link and fabric.size > 8 and fabric.size % 8 == 0:
        name = "two levels: nodes of 8 on NVLink 4, 8 NICs at once"
        tried.append((name, job, fabric.in_nodes("nvlink4", 8)))
    return [Change(name, simulate(other, links)) for name, other, links in tried]


def _larger_batches(step: Step) -> list[float]:
    """How many times the batch until computing is as long as all else, then until backward alone is; rounded up."""
    others = max(step.network, step.job.memory)
    least = [others / step.job.compute, step.network / sum(step.job.backward)]
    return sorted({math.ceil(factor * 100) / 100 for factor in least if factor > 1 and step.limit != "compute"})
