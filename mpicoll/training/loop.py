"""The training loop and the evaluation: the same numbers for every number of ranks, up to rounding.

With a reproducible reducer losses, too, have the same bits: they are added along the tree of the gradients' sums, and
an evaluation is added up batch by batch, in their order.

Where model and samples are on a device, only the indices of a batch travel there, and losses stay there until they are
reported: the host waits for it in the reducer's `finish`, and once per report.
"""

import contextlib
import math
import time

import numpy as np

from .. import gpu
from .fixed_order import NEAR_FIRST
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


def train(comm, model, optimizer, windows, sampler, steps, schedule, limit=None, *, first=0, after_step=None):
    """The model has been trained for `steps` steps; yields one record per step, on all ranks, some steps late.

    The loop owns accumulation: a rank's share of the global batch is computed in micro-batches, and only the last one
    is synchronised.

    Args:
        model: a DistributedDataParallel.
        windows: (samples, context + 1), see `data.Text`; of the same kind of arrays as the model's parameters.
        sampler: gives this rank's share of every global batch, cut into micro-batches.
        optimizer: its `scale` multiplies the loss whose gradients it is given.
        schedule: step → learning rate.
        limit: of the gradients' norm, see `optimizers.clip`; None for no limit.
        first: steps made before, which `steps` counts.
        after_step: called with the number of every step, from 1, on all ranks, when their replicas have made it, and
            tells whether training ends with it; not in a step's time.

    Yields:
        {"step" from 1, "loss": the mean over the predictions of the global batch, "gradient_norm": before it was
        limited, only with a limit, "lr", what the optimizer reports, "step_ms", "compute_ms": step_ms without the
        exposed communication, "backward_ms": of the last micro-batch,
        "comm_ms", "exposed_comm_ms", "waits_ms": what that is made of, by name, "bucket_waits_ms": its part for each,
        "bytes_sent", "unused": the names of parameters that no rank used, if there are such}; times and bytes are this
        rank's.
    """
    records, shares = [], comm.size if model.op == "sum" else 1
    for step in range(first, steps):
        start = time.perf_counter()
        model.zero_grad()
        parts = []  # of the loss, one for each micro-batch
        share = np.asarray(sampler.batch(step), like=windows)
        for i, part in enumerate(np.array_split(share, sampler.accumulation), 1):
            batch = windows[part]
            with contextlib.nullcontext() if i == sampler.accumulation else model.no_sync():
                logits, targets = predict(model, batch)
                divisor = shares * sampler.divisor * math.prod(logits.shape[1:-1])
                losses, grad = cross_entropy(logits, targets, divisor / optimizer.scale)
                model.backward(grad)
            parts.append(losses.sum() / divisor)
        norm = {} if limit is None else {"gradient_norm": clip(model.parameters, limit, optimizer.scale)}
        optimizer.lr = schedule(step)
        with gpu.span("optimizer"):
            optimizer.step()
        took = time.perf_counter() - start
        records.append(
            {
                "step": step + 1,
                "loss": added(parts),
                **norm,
                "lr": optimizer.lr,
                **optimizer.report(),
                "step_ms": took * 1e3,
                "compute_ms": (took - model.exposed_s) * 1e3,
                "backward_ms": model.backward_s * 1e3,
                "comm_ms": model.communication_s * 1e3,
                "exposed_comm_ms": model.exposed_s * 1e3,
                "waits_ms": {name: seconds * 1e3 for name, seconds in model.waits.items()},
                "bucket_waits_ms": [bucket.waited_s * 1e3 for bucket in model.buckets],
                "bytes_sent": model.bytes_sent,
                **({"unused": [p.name for p in model.unused]} if model.unused else {}),
            }
        )
        if len(records) == REPORT_EVERY or step == steps - 1:
            yield from complete(comm, model, records)
            records = []
        if after_step and after_step(step + 1):  # after the records, so that a bad loss ends the run before it is saved
            break
    if records:
        yield from complete(comm, model, records)


def complete(comm, model, records):
    """The records with what is added up over the ranks, as numbers on the host."""
    # Norms are the same on all ranks already, but where not all have the averages: with a parameter server, or none.
    names = [name for name in ("loss", "gradient_norm") if name in records[0]]
    values = on_host(np.stack([record[name] for name in names for record in records]))
    n = len(records)
    values[:n] = comm.allreduce(values[:n], op=model.op, algorithm=NEAR_FIRST)
    values = values.reshape(len(names), -1).T
    rows = (dict(zip(names, map(float, row), strict=True)) for row in values)
    return [{**record, **row} for record, row in zip(records, rows, strict=True)]


def added(numbers):
    """The sum of one or more numbers along a binary tree, as balanced as can be, in order."""
    if len(numbers) == 1:
        return numbers[0]
    half = (len(numbers) + 1) // 2
    return added(numbers[:half]) + added(numbers[half:])


def evaluate(comm, model, windows, batch=1000):
    """(loss, accuracy): the means over all predictions of all windows, each exactly once, the same on all ranks.

    The accuracy is how often the largest logit is the target's. Batches of `batch` windows are shared out; what each
    adds up to, in float64, is added in the same order for every number of ranks.
    """
    starts, rows = range(0, len(windows), batch), []
    mine = np.array_split(range(len(starts)), comm.size)[comm.rank]
    sums = np.zeros((len(starts), 3))  # of each batch: losses, right answers, predictions; zero on the other ranks
    for i in mine:
        logits, targets = predict(model, windows[starts[i] : starts[i] + batch])
        right = (logits.argmax(axis=-1) == targets).astype(np.float64)
        losses, _ = cross_entropy(logits, targets)
        rows.append(np.stack([losses.sum(), right.sum()]))
        sums[i, 2] = targets.size
    if rows:
        sums[mine, :2] = on_host(np.stack(rows))
    loss, right, count = comm.allreduce(sums).sum(axis=0)
    return float(loss / count), float(right / count)
