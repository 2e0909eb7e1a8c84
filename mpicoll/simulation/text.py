"""The answers as text: tables and bars."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import Any, NamedTuple

from .step import Bucket, Change, Step
from .units import in_bytes, in_count

BAR = 64  # columns
MEMORY = "  * the GPU's memory sets its time: weights, gradients and state pass it at least once in a step"


class Answer(NamedTuple):
    """Text for readers, and the same numbers for programs (bytes and seconds)."""

    lines: list[str]
    data: dict[str, Any]


def table(header: Sequence[str], rows: Sequence[Sequence[str]], align: str) -> list[str]:
    """Lines with a letter of `align` for each column: l or r, to which side it is aligned."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    lines = []
    for row in [header, *rows]:
        cells = zip(row, widths, align, strict=True)
        lines.append("  ".join(["", *(c.ljust(w) if side == "l" else c.rjust(w) for c, w, side in cells)]).rstrip())
    return lines


def ms(seconds: float) -> str:
    return f"{seconds * 1e3:,.{2 if 0 < seconds < 0.01 else 1}f} ms"


def percent(share: float) -> str:
    return f"{share * 100:.1f} %"


def bar(spans: Sequence[tuple[float, float, str]], end: float) -> str:
    """A line of BAR columns for `end` seconds: the character of each span (start, stop, character), "." elsewhere.

    A column has the character of what happens in its middle; a span between two middles is seen only if it is alone.
    """
    line = ["."] * BAR
    for start, stop, char in spans:
        first, last = (math.ceil(t / end * BAR - 0.5) for t in (start, stop))
        line[first:last] = char * (last - first)
        if first == last and len(spans) < 3:
            line[min(first, BAR - 1)] = char
    return "".join(line)


def step(result: Step, options: Sequence[Change]) -> list[str]:
    """A data-parallel step: what each part takes alone, the bounds, the timeline, the verdict and what would help."""
    job, fabric = result.job, result.fabric
    cap = f"cap {job.bucket_cap_mb:g} MiB, the first {min(job.first_bucket_mb, job.bucket_cap_mb):g}"
    sent = "nothing is sent"
    if result.buckets:
        largest = in_bytes(max(bucket.nbytes for bucket in result.buckets))
        sent = f"{len(result.buckets)} buckets of at most {largest}"
    lines = [
        f"Data-parallel step of {in_count(sum(job.layers))} parameters on {fabric.size} GPU{'s' * (fabric.size > 1)}, "
        f"all-reduce: {fabric.algorithm} on {fabric.name}",
        f"  gradients {in_bytes(job.nbytes)} ({job.itemsize} B each), {len(job.layers)} layers of {job.tensors} "
        f"tensors; {sent}",
        f"  ({cap}; a tensor is never cut: a larger one has a bucket of its own)",
        "",
        "What each takes alone",
    ]
    net = f"{in_bytes(result.sent)} sent per GPU: bandwidth {ms(result.bandwidth)} + latency {ms(result.latency)}"
    backward = job.compute - job.forward
    lines += table(
        ("", "time", ""),
        (
            ("compute", ms(job.compute), f"forward {ms(job.forward)}, backward {ms(backward)}"),
            ("memory", ms(job.memory), "at least: weights, gradients, optimizer state; no activations"),
            ("network", ms(result.network), net),
        ),
        "lrl",
    )[1:]
    meaning = {
        "max": "max(compute, memory, network): everything overlaps; a bound",
        "timeline": "simulated below: only backward hides communication",
        "sum": "compute + memory + network: nothing overlaps; a bound",
    }
    rows = [
        (name, ms(t), ms(t - result.gpu), percent(result.gpu / t), meaning[name]) for name, t in result.bounds.items()
    ]
    lines += ["", "The step", *table(("", "time", "exposed", "efficiency", ""), rows, "lrrrl")]
    return [*lines, "", *timeline(result), "", *verdict(result, options)]


def timeline(result: Step) -> list[str]:
    """The GPU's lane, the network's and the buckets' (of many the first and the last ones)."""
    end = result.bounds["timeline"]
    backward = [(start, stop, "b") for start, stop in result.layers]
    buckets = result.buckets
    lines = [
        f"Timeline, {BAR} columns = {ms(end)}: f forward, b backward, - full and waiting, # all-reduce",
        f"  {'GPU':<40}{bar([(0, result.forward, 'f'), *backward], end)}",
    ]
    if not buckets:
        return lines
    lines.append(f"  {'network':<40}{bar([(x.start, x.stop, '#') for x in buckets], end)}")
    shown = range(len(buckets)) if len(buckets) <= 12 else (0, 1, 2, 3, -4, -3, -2, -1)

    def row(number: int, bucket: Bucket) -> str:
        text = f"bucket {number}: {in_bytes(bucket.nbytes)}, {bucket.ready * 1e3:.1f} {bucket.start * 1e3:.1f}"
        spans = [(bucket.ready, bucket.start, "-")] if bucket.start > bucket.ready else []
        return f"  {f'{text} {bucket.stop * 1e3:.1f}':<40}{bar([*spans, (bucket.start, bucket.stop, '#')], end)}"

    lines.append("  (size, ms at which it is full, starts, stops)")
    for index in shown:
        if index == -4:
            lines.append(f"  ... {len(buckets) - 8} more")
        lines.append(row(index % len(buckets), buckets[index]))
    return lines


def verdict(result: Step, options: Sequence[Change]) -> list[str]:
    """What limits the step, and the step after each change."""
    lines = [f"Verdict: {result.verdict}{'*' if result.waits_for_memory else ''}."]
    bounds = result.bounds
    if result.exposed > 0:
        tail = "" if result.network > result.gpu else " (the buckets that are full last)"
        lines[0] += f" {ms(result.exposed)} of communication are exposed{tail}"
        if bounds["max"] > result.gpu:
            lines[0] += f"; at least {ms(bounds['max'] - result.gpu)} are, whatever overlaps"
        lines[0] += "."
    rows = []
    for change in options:
        new = change.step
        times = new.bounds
        shares = percent(new.gpu / times["max"]), percent(new.efficiency)
        floor = "*" if new.waits_for_memory else ""
        rows.append(
            (change.name, ms(new.network), ms(times["max"]), ms(times["timeline"]), *shares, new.verdict + floor)
        )
    if rows:
        header = ("", "network", "max", "timeline", "by max", "by timeline", "verdict")
        lines += ["What would change it, each alone (by: efficiency)", *table(header, rows, "lrrrrrl")]
    if result.waits_for_memory or any(change.step.waits_for_memory for change in options):
        lines.append(MEMORY)
    return lines


def notes(texts: Sequence[str]) -> list[str]:
    """Lines that say where the lesson, or the question, is looser than the numbers above."""
    lines = [""] if texts else []
    for text in texts:
        lines += textwrap.wrap(f"Note: {text}", 112, subsequent_indent="  ")
    return lines
