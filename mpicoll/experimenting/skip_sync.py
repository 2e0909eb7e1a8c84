"""Skipping synchronisation: gradients of some micro-steps are accumulated by no_sync, and only the last one is sent."""

from __future__ import annotations

from functools import partial

from .outcome import LEGEND, TIMES, Outcome, bars
from .runs import Setting, clocks, measure, saved, variants

EVERY = 1, 2, 4, 8  # micro-steps
BATCH = 8  # samples per rank and micro-step
SOURCE = (
    "Li et al. 2020 list it as the third technique beside buckets and overlap. It is not free: the global batch "
    "grows with it (see batch-size)."
)


def run(setting: Setting) -> Outcome:
    """Collective."""
    micro = ["--micro-batch", BATCH]
    those = variants(setting, {str(every): setting.gpt(BATCH * every, *micro) for every in EVERY})
    measure(setting, those, steps=1)
    found = [variant.times() / every for every, variant in zip(EVERY, those, strict=True)]
    rows = [
        {
            "every": every,
            "global_batch": variant.parts.sampler.global_batch,
            **clocks(times),
            "saved": saved(times[0], found[0][0]) if every > 1 else None,
        }
        for every, variant, times in zip(EVERY, those, found, strict=True)
    ]
    columns = {
        "every": ("synchronised every", "d"),
        "global_batch": ("global batch", "d"),
        **{key: (head.replace("step", "micro-step"), form) for key, (head, form) in TIMES.items()},
        "saved": ("saved", ".1%"),
    }
    words = (
        f"Times are those of a micro-step of {BATCH} samples per rank, its part of the optimizer included. {LEGEND}."
    )
    draw = partial(bars, rows=rows, name="every", x="synchronised every so many micro-steps", per="micro-step")
    return Outcome("skip-sync", those[0].model, " ".join(those[0].words), columns, rows, [words], SOURCE, draw)
