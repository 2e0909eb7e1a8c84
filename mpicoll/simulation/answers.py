"""What the commands on communication print: an Answer for each, from numbers and names."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from .. import cost
from ..links import PRESETS
from . import fabric as fabrics
from . import state, sweep, text
from .fabric import Fabric
from .step import Job, Step, changes
from .text import Answer, ms, notes, percent, table
from .units import digits, in_bytes, in_count, in_time


def allreduce(nbytes: int, sizes: Sequence[int], texts: Sequence[str], algorithm: str | None) -> Answer:
    """An all-reduce on each fabric, with reduction in the switches beside the ring: bytes, time, counted both ways.

    Raises:
        ValueError: from `fabric.build`.
    """
    built = []
    for name, size in itertools.product(dict.fromkeys(texts), sizes):
        built.append(fabrics.build(name, size, algorithm))
        if algorithm is None and f"{name}-sharp" in PRESETS.keys() - set(texts):
            built.append(fabrics.build(f"{name}-sharp", size))
    rows, data = [], []
    for one in built:
        took = one.allreduce(nbytes)
        busbw = float(cost.busbw_factor("allreduce", one.size)) * nbytes / took.seconds if one.size > 1 else 0.0
        times = [in_time(x) for x in (took.bandwidth, took.latency, took.seconds)]
        sent = in_bytes(took.sent), f"{took.sent / nbytes:.4g} M"
        rows.append([one.name, one.algorithm, str(one.size), *sent, *times, f"{digits(busbw / 1e9)} GB/s"])
        data.append(
            {"links": one.name, "algorithm": one.algorithm, "size": one.size, "sent": took.sent}
            | {"bandwidth_s": took.bandwidth, "latency_s": took.latency, "seconds": took.seconds, "busbw": busbw}
        )
    header = ("links", "algorithm", "N", "sent per GPU", "", "bandwidth", "latency", "time", "busbw")
    lines = [f"All-reduce of M = {in_bytes(nbytes)}", *table(header, rows, "llrrrrrrr")]
    if any(one.algorithm == "in_network" for one in built):
        lines.append(
            "  busbw counts a ring's bytes, so where the switches add it may exceed the link (nccl-tests, too)"
        )
    lines += _both_ways(nbytes, [one for one in built if one.size == sizes[0] and one.name in texts])
    return Answer(lines + _growth(nbytes, built), {"nbytes": nbytes, "allreduce": data})


def _growth(nbytes: int, built: Sequence[Fabric]) -> list[str]:
    """From the first to the last number of GPUs on the first links: what grows, and what does not."""
    few, many = built[0], [one for one in built if one.name == built[0].name][-1]
    if not many.size > few.size > 1:
        return []
    a, b = few.allreduce(nbytes), many.allreduce(nbytes)
    latency = f", latency x {digits(b.latency / a.latency)}" if a.latency else ""
    growth = f"{a.sent / nbytes:.4g} M becomes {b.sent / nbytes:.4g} M (x {digits(b.sent / a.sent)}){latency}"
    return ["", f"From N = {few.size} to {many.size} on {few.name}: {growth}"]


def _both_ways(nbytes: int, built: Sequence[Fabric]) -> list[str]:
    """The bandwidth part by both ways to count a link, where there is one link for all and a formula for its bytes."""
    ways = [x for x in built if len(x.levels) == 1 and x.size > 1 and x.algorithm in ("ring", "in_network")]
    if not ways:
        return []
    rows = []
    for one in ways:
        link, seconds = one.levels[0].link, one.allreduce(nbytes).bandwidth
        rates = [f"{digits(rate / 1e9)} GB/s" for rate in (link.bandwidth, 2 * link.bandwidth)]
        rows.append([one.name, rates[0], in_time(seconds), rates[1], in_time(seconds / 2), link.counts])
    header = ("links", "per direction", "time", "both directions", "time", "what the known number counts")
    lines = [
        "",
        f"The bandwidth part at N = {ways[0].size}, with the rate of a link counted both ways",
        *table(header, rows, "lrrrrl"),
        "  A GPU sends its bytes while it receives as many, so the time is that of one direction. The bytes sent over",
        "  the rate of both directions give half of it: no link is that fast.",
    ]
    rings = [one for one in ways if one.algorithm == "ring"]  # what switches add is not like for like
    for one, other in itertools.pairwise(rings):
        a, b = one.levels[0].link, other.levels[0].link
        line = f"  {other.name} takes {digits(b.beta / a.beta)} times as long as {one.name}, like for like"
        if (a.kind == "nvlink") != (b.kind == "nvlink"):
            quoted = b.beta / a.beta * (2 if a.kind == "nvlink" else 0.5)
            line += f"; {digits(quoted)} times as quoted: NVLink's number counts both directions, the other's one"
        lines.append(line)
    return lines


def step(result: Step, memory: float) -> Answer:
    """A data-parallel step on GPUs of so many bytes of memory, and where the lesson's arithmetic is looser."""
    job, fabric = result.job, result.fabric
    held, share = sum(job.layers) * state.BYTES_PER_PARAMETER, (fabric.size - 1) / fabric.size
    said = []
    if held > memory:
        said.append(
            f"every GPU holds {in_bytes(held)} of state ({state.BYTES_PER_PARAMETER} B per parameter), too much for "
            f"its {in_bytes(memory)}: see `simulate memory`."
        )
    if result.bounds["timeline"] > 1.02 * result.bounds["max"]:
        said.append(
            "max() also lets forward hide communication. But there are gradients only from backward on, and the last "
            "bucket sticks out, so the timeline is longer."
        )
    if fabric.algorithm == "ring" and fabric.size > 1:
        said.append(
            f"ZeRO's reduce-scatter sends {in_bytes(share * job.nbytes)} instead, but its all-gather of weights sends "
            "as much again: ZeRO-1 and 2 move what the all-reduce moves, ZeRO-3 1.5 times that."
        )
        if fabric.size > 8 and fabric.levels[-1].link.kind == "network":
            said.append(
                "one ring leaves a node by one NIC at a time. If every GPU has its own, all can be used at once: that "
                "is what two levels do, and NCCL's several rings."
            )
    options = changes(result)
    data = _data(result) | {"changes": {change.name: _data(change.step) for change in options}}
    return Answer(text.step(result, options) + notes(said), data)


def _data(result: Step) -> dict[str, Any]:
    bounds = result.bounds
    return {
        "size": result.fabric.size,
        "compute_s": result.job.compute,
        "memory_s": result.job.memory,
        "network_s": result.network,
        "latency_s": result.latency,
        "bandwidth_s": result.bandwidth,
        "sent": result.sent,
        "bounds_s": bounds,
        "efficiency": {name: result.gpu / seconds for name, seconds in bounds.items()},
        "exposed_s": result.exposed,
        "verdict": result.verdict,
        "buckets": len(result.buckets),
    }


def scaling(points: Sequence[sweep.Point], job: Job) -> Answer:
    """A sweep over numbers of GPUs; the job is that of a GPU on the first of them."""
    fewest = points[0].size
    rows, data = [], []
    for point in points:
        weak, strong, speedup = point.weak, point.strong, point.speedup(points[0])
        at_batch = ms(weak.bounds["timeline"]), ms(weak.exposed), percent(weak.efficiency)
        shared = ms(strong.gpu), ms(strong.bounds["timeline"]), digits(speedup), percent(speedup * fewest / point.size)
        floor = "*" if strong.waits_for_memory else ""
        shared = f"{shared[0]}{floor}", *shared[1:]
        rows.append([str(point.size), ms(weak.network), *at_batch, weak.verdict, *shared, strong.verdict])
        data.append({"size": point.size, "weak": _data(weak), "strong": _data(strong), "speedup": speedup})
    header = ["N", "network", "weak: step", "exposed", "efficiency", "verdict"]
    header += ["strong: GPU", "step", "speed-up", "efficiency", "verdict"]
    fabric = points[-1].weak.fabric
    lines = [
        f"{in_count(sum(job.layers))} parameters, all-reduce: {fabric.algorithm} on {fabric.name}",
        f"  weak: every GPU computes {ms(job.compute)}; strong: the global batch of N = {fewest} is shared by all",
        *table(header, rows, "rrrrrlrrrrl"),
        f"  speed-up: over N = {fewest} without communication; ideal is N / {fewest}. Steps are simulated (timeline).",
    ]
    if any(point.strong.waits_for_memory for point in points):
        lines.append(text.MEMORY)
    return Answer(lines, {"scaling": data})


def chatty(size: int, inside: str, across: str, nbytes: int, calls: int, gradients: float, compute: float) -> Answer:
    """The chatty all-reduces inside nodes against across them; arguments as in `sweep.chatty`."""
    placements = sweep.chatty(size, inside, across, nbytes, calls, gradients, compute)
    rows, data = [], []
    for x in placements:
        times = x.chatty.bandwidth, x.chatty.latency, x.sync.seconds, x.exposed, x.step
        rows.append([x.where, *map(ms, times)])
        data.append(
            {"placed": x.where, "chatty_s": x.chatty.seconds, "gradients_s": x.sync.seconds}
            | {"exposed_s": x.exposed, "step_s": x.step}
        )
    good, bad = placements
    lines = [
        f"{size} nodes of {size} GPUs: {inside} inside, {across} across; compute {ms(compute)}",
        f"  groups of {size} GPUs do {calls} all-reduces of {in_bytes(nbytes)} in a step, and wait for each;",
        f"  the {size} replicas all-reduce gradients of {in_bytes(gradients)} once, under backward",
        *table(("groups", "bandwidth", "latency", "gradients", "exposed", "step"), rows, "lrrrrr"),
        f"  across nodes the groups' part takes {digits(bad.chatty.seconds / good.chatty.seconds)} times as long, the "
        f"step {digits(bad.step / good.step)} times",
    ]
    return Answer(lines, {"chatty": data})
