"""Weak scaling: every rank that takes part computes the same batch; the others sleep."""

from __future__ import annotations

import os
from functools import partial
from typing import Any

from .outcome import LEGEND, TIMES, Outcome, lines
from .runs import Setting, Variant, clocks, measure, ratio, some, spread

BATCH = 12  # samples per rank
SOURCE = (
    "Li et al. 2020: near-linear up to 256 GPUs when configured well. The lecture: efficiency is the throughput of N "
    "over N times that of one; a step takes the longer of computation and communication at best."
)


def counts(size: int) -> list[int]:
    """1, 2, 4, ... and `size`."""
    powers = [1 << i for i in range(size.bit_length())]
    return sorted({*(n for n in powers if n <= size), size})


def run(setting: Setting) -> Outcome:
    """Collective; what it returns is complete on rank 0, which is always among those that train."""
    ranks = counts(setting.comm.size)
    those = []
    for n in ranks:
        those.append(Variant(setting, str(n), setting.gpt(BATCH, ranks=n), some(setting, n)))
    measure(setting, those)
    rows: list[dict[str, Any]] = []
    alone = None
    for n, variant in zip(ranks, those, strict=True):
        if not variant.comm:
            continue
        times = variant.times()
        alone = times[0] if alone is None else alone
        step = spread(times[0])
        samples = {
            key: 1e3 * n * BATCH / step[other] for key, other in (("median", "median"), ("q1", "q3"), ("q3", "q1"))
        }
        rows.append(
            {
                "ranks": n,
                **clocks(times),
                "samples_per_s": samples,
                "efficiency": ratio(alone, times[0]) if n > 1 else None,
                "epoch_s": variant.parts.sampler.count / samples["median"],
            }
        )
    columns = {
        "ranks": ("ranks", "d"),
        **TIMES,
        "samples_per_s": ("samples/s", ".0f"),
        "efficiency": ("efficiency", ".0%"),
        "epoch_s": ("epoch (s)", ".0f"),
    }
    nodes = setting.comm.nodes
    most, cores = max(map(nodes.count, set(nodes))), os.cpu_count() or 1
    words = [f"{LEGEND}."]
    if most > cores:
        words.insert(0, f"{most} ranks share the {cores} cores of a node: more than {cores} cannot compute at a time.")
    ideal = [rows[0]["samples_per_s"]["median"] * row["ranks"] for row in rows]
    series = {"measured": [row["samples_per_s"] for row in rows], "ranks x that of one": ideal}
    ranks = [row["ranks"] for row in rows]
    draw = partial(lines, xs=ranks, series=series, x="ranks", y="samples per second", least=0)
    return Outcome("scaling", those[-1].model, " ".join(those[-1].words), columns, rows, words, SOURCE, draw)
