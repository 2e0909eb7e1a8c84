"""The bucket cap: large buckets cost less to send, small ones start earlier; 0 is a bucket for each parameter."""

from __future__ import annotations

from functools import partial
from typing import Any

from .outcome import LEGEND, TIMES, Outcome, bars
from .runs import Setting, clocks, measure, variants

CAPS = 0, 1, 5, 10, 25, 100  # MiB
BATCH = 6  # samples per rank
SIZES = "--width 512 --layers 3 --heads 8 --optimizer sgd --lr 0.001 --clip 0"  # 36 MiB: the caps are all different
SOURCE = (
    "Li et al. 2020: for ResNet50 on 16 GPUs with NCCL caps from 10 to 25 MB were fastest; DDP's default is 25. "
    "Large buckets cost less to send but wait longer for their gradients: measure your own case."
)


def run(setting: Setting) -> Outcome:
    """Collective."""
    caps: dict[int, list[object]] = {
        cap: ["--bucket-cap-mb", cap] if cap else ["--sync", "per-parameter"] for cap in CAPS
    }
    ways = {str(cap): setting.gpt(BATCH, *words, sizes=SIZES) for cap, words in caps.items()}
    those = variants(setting, ways)
    measure(setting, those, repetitions=4, steps=2)
    rows: list[dict[str, Any]] = [
        {
            "cap_mb": cap,
            "buckets": len(variant.parts.model.buckets),
            **clocks(variant.times()),
        }
        for cap, variant in zip(CAPS, those, strict=True)
    ]
    best = min(rows, key=lambda row: row["step_ms"]["median"])
    mib = sum(bucket.flat.nbytes for bucket in those[0].parts.model.buckets) / 2**20
    words = (
        f"Here {mib:.1f} MiB of gradients went fastest with a cap of {best['cap_mb']} MiB; the first bucket has at "
        f"most 1 MiB, and so has the last. {LEGEND}."
    )
    columns = {"cap_mb": ("cap (MiB)", "d"), "buckets": ("buckets", "d"), **TIMES}
    return Outcome(
        "bucket-sweep",
        those[0].model,
        " ".join(those[0].words),
        columns,
        rows,
        [words],
        SOURCE,
        partial(bars, rows=rows, name="cap_mb", x="bucket cap (MiB); 0: a bucket for each parameter"),
    )
