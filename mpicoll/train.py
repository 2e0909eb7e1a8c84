"""Trains a model, data-parallel: mpirun -np 8 python -m mpicoll.train

By default a small GPT reads characters of English; --model mlp is a simpler one, --data digits are images.

Every rank holds a replica of the model and computes its share of every global batch; the gradients are averaged while
backward goes on (training/reducer.py), and all replicas make the same step. At the end it prints what was learnt, where
the time went, whether the bytes sent are those of the formula and whether all replicas are bit-identical.

Exit status: 0 if all is right; 1 if bytes or replicas differ or the loss is not finite; 2 if an argument is wrong.
"""

import contextlib
import json
import math
import time

from . import runtime
from .command import fail
from .training import options

NAME = "mpicoll.train"


def main(argv=None):
    """The exit status of training as the arguments say; failure is rank 0's to report, the others' status is 0.

    A launcher ends all ranks as soon as one has failed: what rank 0 has to say would be lost.
    """
    args = options.parse(argv, __doc__)
    runtime.limit_threads()
    from .training import devices

    found = devices.find(args.device)
    from mpi4py import MPI

    from .communicator import Communicator
    from .progress import thread
    from .training.setup import set_up

    world = MPI.COMM_WORLD
    with contextlib.ExitStack() as stack:
        try:
            device = devices.agree(world, args.device, found)
            comm = stack.enter_context(Communicator(world))
            parts = set_up(comm, args, stack, *device)
        except ValueError as error:
            return fail(NAME, 2, error)
        if args.progress_thread:
            stack.enter_context(thread())
        return run(comm, args, parts)


def run(comm, args, parts):
    """The exit status, after training, evaluation and the report."""
    import numpy as np
    from tqdm import tqdm

    from .training import report
    from .training.loop import evaluate, train
    from .training.optimizers import warmup_decay

    records = []

    def schedule(step):
        return parts.peak * warmup_decay(step, parts.steps, args.warmup)

    if comm.rank == 0:
        print(report.heading(comm, parts), flush=True)
    start = time.perf_counter()
    limit = args.clip or None
    training = train(comm, parts.model, parts.optimizer, parts.data.train, parts.sampler, parts.steps, schedule, limit)
    bar = tqdm(total=parts.steps, unit="step", mininterval=0.5, disable=comm.rank != 0)
    with bar, np.errstate(over="ignore", invalid="ignore"):  # a loss that is not finite is reported instead
        try:
            for record in training:
                records.append(record)
                bar.set_postfix(loss=f"{record['loss']:.3f}", refresh=False)
                bar.update()
                write(parts.metrics, {"event": "step", **record})
                if not math.isfinite(record["loss"]):
                    return fail(NAME, 1, f"the loss is {record['loss']} at step {record['step']}; try a lower --lr")
        except FloatingPointError as error:  # --check-finite; all ranks are here
            return fail(NAME, 1, error)
    seconds = time.perf_counter() - start
    held_out = evaluate(comm, parts.whole, parts.data.held_out, parts.sampler.micro_batch)
    summary = report.summarise(comm, parts, records, seconds, held_out)
    write(parts.metrics, summary)
    if comm.rank:
        return 0
    print(report.table(summary), flush=True)
    return 0 if summary["replicas_identical"] and summary["bytes_as_formula"] else 1


def write(metrics, record):
    """The record is a line of the metrics file, where there is one."""
    if metrics:
        metrics.write(json.dumps(record) + "\n")


if __name__ == "__main__":
    raise SystemExit(main())
