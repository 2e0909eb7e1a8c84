"""More ranks change the problem: with a fixed batch per rank they enlarge the global batch, and there are fewer steps.

The trainer gives the same numbers on any number of ranks, up to rounding, so what n ranks would learn is learnt here by
those that there are, from the global batch that n would have: also for more ranks than were started.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from ..training import data, loop, optimizers, recipes
from . import noise
from .outcome import Outcome, lines
from .runs import Setting, Variant, some, spread, together

RANKS = 1, 2, 4, 8, 16
SEEDS = 3
LEARNT = {
    "eval_loss": ("held-out loss", ".3f"),
    "eval_accuracy": ("accuracy", ".1%"),
    "noise_scale": ("noise scale", ".0f"),
}
PIXELS = "--model mlp --data digits --hidden 64"
TEXT = "--model mlp --hidden 128 --layers 1"
SOURCE = (
    "The lecture: more GPUs silently change your optimisation problem; hold the global batch fixed, or multiply the "
    "rate by what the batch was multiplied by, with warm-up (Goyal et al. 2017). A batch pays up to about the noise "
    "scale (McCandlish et al. 2018)."
)


def run(setting: Setting) -> Outcome:
    """Collective; what it returns is complete on rank 0."""
    digits = bool(setting.comm.broadcast(np.array([setting.comm.rank == 0 and can_read(data.DIGITS)]))[0])
    model, about, steps = (PIXELS, 24, 800) if digits else (TEXT, 96, 800)
    recipe = recipes.RECIPES["digits" if digits else "mlp"]
    size = setting.comm.size
    batch = size * max(1, round(about / size))  # of n = 1, so every global batch divides by the ranks
    seeds, ranks = (1, RANKS[:2]) if setting.quick else (SEEDS, RANKS)
    steps = 20 if setting.quick else steps
    full: Any = recipe["lr"]
    fixed = ["--lr", f"{full['sgd'] * batch / recipe['global_batch']:.4g}", "--warmup", "0"]
    linear = ["--lr", str(full["sgd"]), "--lr-rule", "linear", "--warmup", "0.1"]
    alone = some(setting, 1)
    runs: list[tuple[str, int, Any, list[str]]] = [
        ("one rank", 1, alone, fixed),
        (f"global batch fixed, on {size} ranks", 1, setting.comm, fixed),
        *(("batch per rank fixed", n, setting.comm, fixed) for n in ranks[1:]),
        *(("the same, linear rate, warm-up", n, setting.comm, linear) for n in ranks[1:]),
    ]
    rows = []
    trainer = ""
    with setting.bar(seeds * len(runs), "run") as bar:
        for name, n, comm, words in runs:
            shape = [*model.split(), "--optimizer", "sgd", "--global-batch", str(batch * n), "--steps", str(steps // n)]
            trainer = trainer or " ".join([*shape, *words])
            made = []
            for seed in range(seeds):
                together(setting.world)
                if comm:
                    made.append(learn(setting, [*shape, *words, "--seed", str(seed)], comm))
                bar.update()
            if made:
                values = {key: spread([one[key] for one in made]) if key in made[0] else None for key in LEARNT}
                rows.append(
                    {
                        "run": name,
                        "ranks": comm.size if n == 1 else n,
                        "global_batch": batch * n,
                        "steps": steps // n,
                        **values,
                    }
                )
    together(setting.world)
    columns = {
        "run": ("run", ""),
        "ranks": ("ranks", "d"),
        "global_batch": ("global batch", "d"),
        "steps": ("steps", "d"),
        **LEARNT,
    }
    found = [
        f"Every run sees the same {batch * steps:,} samples; median and quartiles over seeds ({seeds}). Noise scale: "
        "in samples, over the second half of a run, from the norms of the ranks' own gradients and of their average."
    ]
    if not digits:
        found.insert(0, "scikit-learn is not there, so this is text; with pip install 'mpicoll[digits]' it is digits.")
    what = f"MLP on {'digits' if digits else 'text'}, SGD with momentum"
    return Outcome("batch-size", what, trainer, columns, rows, found, SOURCE, partial(draw, rows=rows, ranks=ranks))


def can_read(path: str) -> bool:
    """The data can be read on this rank."""
    try:
        _untyped(data.read)(path)
    except ValueError:
        return False
    return True


def learn(setting: Setting, words: list[str], comm: Any) -> dict[str, float]:
    """What is LEARNT; one rank does not see the noise scale. Collective."""
    variant = Variant(setting, "", words, comm)
    p, evaluate, decay = variant.parts, *map(_untyped, (loop.evaluate, optimizers.warmup_decay))
    p.model.exchange = norms = noise.Norms()
    variant.train(p.steps, lambda step: p.peak * decay(step, p.steps, variant.args.warmup))
    learnt = dict(zip(LEARNT, evaluate(comm, p.whole, p.data.held_out), strict=False))
    if comm.size > 1:
        local, averaged = (x[p.steps // 2 :] for x in norms.steps(comm, len(p.model.buckets)))
        learnt["noise_scale"] = noise.scale(local, averaged, p.sampler.share, p.sampler.global_batch)
    return learnt


def _untyped(function: Any) -> Any:
    return function


def draw(panel: Any, rows: Sequence[dict[str, Any]], ranks: Sequence[int]) -> None:
    """The held-out loss over the number of ranks that the batch stands for, for each rule."""
    base, same = rows[:2]
    kinds = dict.fromkeys(row["run"] for row in rows[2:])
    series = {same["run"].split(",")[0]: [same["eval_loss"]] * len(ranks)}
    for kind in kinds:
        series[kind] = [base["eval_loss"], *(row["eval_loss"] for row in rows[2:] if row["run"] == kind)]
    lines(panel, ranks, series, "ranks that the batch stands for", "held-out loss (nats)")
