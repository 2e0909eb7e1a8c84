"""Four ways to synchronise, and slide 46's question: is the update that every rank repeats for itself a waste?"""

from __future__ import annotations

import time
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from ..training import sync
from ..training.parameter_server import ParameterServer
from ..training.replicas import on_host
from .outcome import LEGEND, TIMES, Outcome, bars, cell
from .runs import Setting, Spread, Variant, clocks, measure, spread, together, variants

BATCH = 12  # samples per rank
REPETITIONS = 15
SOURCE = (
    "The lecture, slide 46: with all-reduce there is no server, but every worker updates the parameters itself; this "
    "is redundant, and much faster than moving the parameters between GPUs."
)


def run(setting: Setting) -> Outcome:
    """Collective."""
    those = variants(setting, {mode: setting.gpt(BATCH, "--sync", mode) for mode in sync.MODES})
    measure(setting, those)
    rows = []
    for variant in those:
        times = variant.times()
        rows.append(
            {
                "sync": variant.name,
                "buckets": len(variant.parts.model.buckets),
                **clocks(times),
                "sent_mib": variant.turns[-1][-1]["bytes_sent"] / 2**20,
            }
        )
    push, pull = map(spread, those[list(sync.MODES).index("parameter-server")].times("push", "pull"))
    update, transfer = slide_46(setting, those[0])
    times_as_long = transfer["median"] / update["median"]
    found = [
        f"Slide 46: the redundant local update takes {cell(update, '.1f')} ms, the transfer of the parameters that it "
        f"replaces {cell(transfer, '.1f')} ms, {times_as_long:.1f} times as long.",
        f"The parameter server's two waits: push {cell(push, '.1f')} ms, pull {cell(pull, '.1f')} ms; in the second "
        f"workers wait for the server's update, too. {LEGEND}.",
    ]
    columns = {
        "sync": ("--sync", ""),
        "buckets": ("buckets", "d"),
        **TIMES,
        "sent_mib": ("sent by rank 0 (MiB)", ".1f"),
    }
    draw = partial(bars, rows=rows, name="sync", x="--sync")
    return Outcome("sync-modes", those[0].model, " ".join(those[0].words), columns, rows, found, SOURCE, draw)


def slide_46(setting: Setting, variant: Variant) -> tuple[Spread, Spread]:
    """Milliseconds of an update on every rank, and of the parameters' way from a server that had nothing to update."""
    model = variant.parts.model
    idle = SimpleNamespace(lr=0.0, step=lambda: None)
    server: Any = ParameterServer()  # type: ignore[no-untyped-call]
    calls = variant.parts.optimizer.step, server.optimizer(model, lambda parameters: idle).step
    repetitions = 1 if setting.quick else REPETITIONS
    took = np.empty((1 + repetitions, len(calls)))
    done: Any = on_host
    for repetition in range(1 + repetitions):
        for i, call in enumerate(calls):
            together(setting.world)
            setting.comm.barrier()
            start = time.perf_counter()
            call()
            done(model.parameters[0].data.reshape(-1)[:1])  # a device has then updated
            took[repetition, i] = (time.perf_counter() - start) * 1e3
    update, transfer = map(spread, setting.comm.allreduce(took, op="avg")[1:].T)
    return update, transfer
