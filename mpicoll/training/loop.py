"""The training loop and the evaluation: the same numbers for every number of ranks, up to rounding.

Where model and samples are on a device, only the indices of a batch travel there, and losses stay there until they are
reported: the host waits for it in the reducer's `finish`, and once per report.
"""

import contextlib
import math
import time

import numpy as np

from .. import gpu
from .losses import cross_entropy
from .optimizers import clip
from .replicas import on_host

REPORT_EVERY = 10  # steps; the losses of so many are reduced together, so that a report costs a step nearly nothing


def predict(model, windows):
    """(logits, targets). All but the last column of the windows goes in; a target is what follows.

    A model with logits at every position, (batch, positions, classes), has targets at every one, else the last is it.
    """
    logits = model.forward(windows[:, :-1])
    return logits, windows[:, 1:] if logits.ndim == 3 else windows[:, -1]


def train(comm, model, optimizer, windows, sampler, steps, schedule, limit=None):
    """The model has been trained for `steps` steps; yields one record per step, on all ranks, some steps late.

    The loop owns accumulation: a rank's share of the global batch is computed in micro-batches, and only the last one
    is synchronised.

    Args:
        model: a DistributedDataParallel.
        windows: (samples, context + 1), see `data.Text`; of the same kind of arrays as the model's parameters.
        sampler: gives this rank's share of every global batch, cut into micro-batches.
        schedule: step → learning rate.
        limit: of the gradients' norm, see `optimizers.clip`; None for no limit.

    Yields:
        {"step" from 1, "loss": the mean over the predictions of the global batch, "gradient_norm": before it was
        limited, only with a limit, "lr", "step_ms", "compute_ms": step_ms without the
        exposed communication, "comm_ms", "exposed_comm_ms", "waits_ms": what that is made of, by name,
        "bytes_sent", "unused": the names of parameters that no rank used, if there are such}; times and bytes are this
        rank's.
    """
    records = []
    for step in range(steps):
        start = time.perf_counter()
        model.zero_grad()
        loss = 0.0
        for i, part in enumerate(np.asarray(sampler.batch(step), like=windows), 1):
            batch = windows[part]
            with contextlib.nullcontext() if i == sampler.accumulation else model.no_sync():
                logits, targets = predict(model, batch)
                divisor = sampler.divisor * math.prod(logits.shape[1:-1])
                losses, grad = cross_entropy(logits, targets, divisor)
                model.backward(grad)
            loss += losses.sum() / divisor
        norm = {} if limit is None else {"gradient_norm": clip(model.parameters, limit)}
        optimizer.lr = schedule(step)
        with gpu.span("optimizer"):
            optimizer.step()
        took = time.perf_counter() - start
        records.append(
            {
                "step": step + 1,
                "loss": loss,
                **norm,
                "lr": optimizer.lr,
                "step_ms": took * 1e3,
                "compute_ms": (took - model.exposed_s) * 1e3,
                "comm_ms": model.communication_s * 1e3,
                "exposed_comm_ms": model.exposed_s * 1e3,
                "waits_ms": {name: seconds * 1e3 for name, seconds in model.waits.items()},
                "bytes_sent": model.bytes_sent,
                **({"unused": [p.name for p in model.unused]} if model.unused else {}),
            }
        )
        if len(records) == REPORT_EVERY or step == steps - 1:
            # Norms are the same on all ranks already, but with a parameter server, which alone has the average.
            names = ["loss", *norm]
            values = on_host(np.stack([record[name] for name in names for record in records]))
            values[: len(records)] = comm.allreduce(values[: len(records)], op="avg")
            values = values.reshape(len(names), -1).T
            for record, row in zip(records, values, strict=True):
                yield {**record, **dict(zip(names, map(float, row), strict=True))}
            records = []


def evaluate(comm, model, windows, batch=1000):
    """(loss, accuracy): the means over all predictions of all windows, each exactly once, the same on all ranks.

    The accuracy is how often the largest logit is the target's. Shards by rank, sums in float64; `batch` windows at a
    time.
    """
    shard, sums, count = np.array_split(windows, comm.size)[comm.rank], [], 0
    for start in range(0, len(shard), batch):
        logits, targets = predict(model, shard[start : start + batch])
        right = (logits.argmax(axis=-1) == targets).astype(np.float64)
        losses, _ = cross_entropy(logits, targets)
        sums.append(np.stack([losses.sum(), right.sum()]))
        count += targets.size
    mine = on_host(sum(sums)) if sums else np.zeros(2)
    loss, right, count = comm.allreduce(np.array([*mine, count]))
    return float(loss / count), float(right / count)
