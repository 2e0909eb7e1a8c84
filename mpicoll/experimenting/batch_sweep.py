"""A smaller batch per rank: computation shrinks, the gradients do not, and there is less to hide them behind."""

from __future__ import annotations

from functools import partial

from .outcome import LEGEND, TIMES, Outcome, bars
from .runs import Setting, clocks, measure, spread, variants

BATCHES = 32, 16, 8, 4, 2, 1  # samples per rank
SOURCE = (
    "The lecture: with a smaller batch per GPU computation shrinks and the all-reduce, fixed by the size of the model, "
    "does not; the exposed share grows and efficiency falls, so just adding GPUs gives less and less."
)


def run(setting: Setting) -> Outcome:
    """Collective."""
    those = variants(setting, {str(batch): setting.gpt(batch) for batch in BATCHES})
    measure(setting, those, steps=2)
    rows = []
    for batch, variant in zip(BATCHES, those, strict=True):
        times = variant.times()
        rows.append(
            {
                "batch": batch,
                **clocks(times),
                "exposed_share": spread(times[1] / times[0]),
                "samples_per_s": 1e3 * batch * setting.comm.size / spread(times[0])["median"],
            }
        )
    columns = {
        "batch": ("batch per rank", "d"),
        **TIMES,
        "exposed_share": ("exposed share", ".0%"),
        "samples_per_s": ("samples/s", ".0f"),
    }
    draw = partial(bars, rows=rows, name="batch", x="samples per rank and step")
    return Outcome("batch-sweep", those[0].model, " ".join(those[0].words), columns, rows, [f"{LEGEND}."], SOURCE, draw)
