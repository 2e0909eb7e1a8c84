"""The training loop and the evaluation: the same numbers for every number of ranks, up to rounding.

Where model and samples are on a device, only the indices of a batch travel there, and losses stay there until they are
reported: the host waits for it in the reducer's `finish`, and once per report.
"""

import contextlib
import time

import numpy as np

from .. import gpu
from .losses import cross_entropy
from .replicas import on_host

REPORT_EVERY = 10  # steps; the losses of so many are reduced together, so that a report costs a step nearly nothing


def train(comm, model, optimizer, windows, sampler, steps, schedule):
    """The model has been trained for `steps` steps; yields one record per step, on all ranks, some steps late.

    The loop owns accumulation: a rank's share of the global batch is computed in micro-batches, and only the last one
    is synchronised.

    Args:
        model: a DistributedDataParallel.
        windows: (samples, context + 1), see `data.Text`; of the same kind of arrays as the model's parameters.
        sampler: gives this rank's share of every global batch, cut into micro-batches.
        schedule: step → learning rate.

    Yields:
        {"step" from 1, "loss": the mean over the global batch, "lr", "step_ms", "compute_ms": step_ms without the
        exposed communication, "comm_ms", "exposed_comm_ms", "bytes_sent"}; times and bytes are this rank's.
    """
    records = []
    for step in range(steps):
        start = time.perf_counter()
        model.zero_grad()
        loss = 0.0
        for i, part in enumerate(np.asarray(sampler.batch(step), like=windows), 1):
            batch = windows[part]
            with contextlib.nullcontext() if i == sampler.accumulation else model.no_sync():
                losses, grad = cross_entropy(model.forward(batch[:, :-1]), batch[:, -1], divisor=sampler.share)
                model.backward(grad)
            loss += losses.sum() / sampler.share
        optimizer.lr = schedule(step)
        with gpu.span("optimizer"):
            optimizer.step()
        took = time.perf_counter() - start
        records.append(
            {
                "step": step + 1,
                "loss": loss,
                "lr": optimizer.lr,
                "step_ms": took * 1e3,
                "compute_ms": (took - model.exposed_s) * 1e3,
                "comm_ms": model.communication_s * 1e3,
                "exposed_comm_ms": model.exposed_s * 1e3,
                "bytes_sent": model.bytes_sent,
            }
        )
        if len(records) == REPORT_EVERY or step == steps - 1:
            losses = on_host(np.stack([record["loss"] for record in records]))
            for record, mean in zip(records, comm.allreduce(losses, op="avg"), strict=True):
                yield {**record, "loss": float(mean)}
            records = []


def evaluate(comm, model, windows, batch=1000):
    """The mean loss over all windows, each exactly once: shards by rank, sums in float64. The same on all ranks."""
    shard = np.array_split(windows, comm.size)[comm.rank]
    total = 0.0
    for start in range(0, len(shard), batch):
        part = shard[start : start + batch]
        total += cross_entropy(model.forward(part[:, :-1]), part[:, -1])[0].sum()
    return float(comm.allreduce(np.array([float(total)]))[0]) / len(windows)
