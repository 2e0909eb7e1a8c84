"""What overlapping saves: buckets sent while backward goes on, against all of them when it has ended."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from .outcome import LEGEND, TIMES, Outcome, bars
from .runs import Setting, clocks, measure, saved, spread, variants

BATCH = 12  # samples per rank
WAYS = {
    "after backward": ["--no-overlap", "--no-progress-thread"],
    "while it goes on": ["--no-progress-thread"],
    "the same, driven by a thread": ["--progress-thread"],
}
SEEN = 0.1  # what is saved of less communication than this share of a step is lost in the step's own noise
SOURCE = "Li et al. 2020: overlapping made ResNet50 38.0 % and BERT 35.2 % faster on NCCL, 26.8 % and 21.5 % on Gloo."


def run(setting: Setting) -> Outcome:
    """Collective."""
    those = variants(setting, {name: setting.gpt(BATCH, *words) for name, words in WAYS.items()})
    measure(setting, those, repetitions=9)
    found = [variant.times() for variant in those]
    base = found[0]
    share = float(np.median(base[1] / base[0]))  # of communication in a step without overlap
    rows: list[dict[str, Any]] = [{"buckets": those[0].name, **clocks(base), "saved": None, "of_communication": None}]
    for variant, times in zip(those[1:], found[1:], strict=True):
        part = spread((base[0] - times[0]) / base[1]) if share > SEEN else None
        row = {"saved": saved(times[0], base[0]), "of_communication": part}
        rows.append({"buckets": variant.name, **clocks(times), **row})
    columns = {
        "buckets": ("buckets are sent", ""),
        **TIMES,
        "saved": ("step saved", ".1%"),
        "of_communication": ("of the communication", ".0%"),
    }
    best = max(rows[1:], key=lambda row: row["saved"]["median"])
    gain = best["saved"]["median"]
    saves = f"{gain:.1%} of the step at best: {best['buckets']}" if gain > 0 else "nothing"
    words = f"Here overlap saves {saves}. Without it communication is {share:.1%} of a step, and no more can be saved."
    return Outcome(
        "overlap",
        those[0].model,
        " ".join(those[0].words),
        columns,
        rows,
        [words, f"{LEGEND}."],
        SOURCE,
        partial(bars, rows=rows, name="buckets", x="buckets are sent"),
    )
