"""Trains a model, data-parallel: mpirun -np 8 python -m mpicoll.train

By default a small GPT reads characters of English; --model mlp is a simpler one, --data digits are images.

Every rank holds a replica of the model and computes its share of every global batch; the gradients are averaged while
backward goes on (training/reducer.py), and all replicas make the same step. At the end it prints what was learnt, where
the time went, whether the bytes sent are those of the formula and whether all replicas are bit-identical.

With --checkpoint DIR a run can be ended at any time, by a signal or a power cut, and goes on with --resume DIR.
`python -m mpicoll.train sample --checkpoint DIR` writes text. With --elastic it goes on without ranks that die.

Exit status: 0 if all is right, or it was ended and saved; 1 if bytes or replicas differ, the loss is not finite or a
checkpoint cannot be written; 2 if an argument is wrong.
"""

import contextlib
import json
import math
import sys
import time

from . import launch, runtime
from .command import fail
from .training import options, reproducible, sync

NAME = "mpicoll.train"


def main(argv=None):
    """The exit status of training as the arguments say; failure is rank 0's to report, the others' status is 0.

    A launcher ends all ranks as soon as one has failed: what rank 0 has to say would be lost.
    """
    argv = sys.argv[1:] if argv is None else argv
    if argv[:1] == ["sample"]:
        from .training import sample

        return sample.main(argv[1:])
    args, problem = options.parse(argv, __doc__), ""
    try:
        reproducible.one_thread() if args.reproducible else runtime.limit_threads()
    except ValueError as error:  # perhaps only here: the others are to learn of it
        problem = str(error)
    from .training import devices

    found = devices.find(args.device)
    try:
        world = launch.start(NAME, found.where)
        if told := [f"{why} (on rank {rank})" for rank, why in enumerate(world.allgather(problem)) if why]:
            raise ValueError(told[0])
        if args.elastic:
            from .survival import refuse

            refuse()
    except ValueError as error:
        return fail(NAME, 2, error)
    from .communicator import Communicator
    from .progress import thread
    from .training.saving import Saving
    from .training.setup import set_up

    with contextlib.ExitStack() as stack:
        try:
            device = devices.agree(world, args.device, found)
            comm = stack.enter_context(Communicator(world))
            parts = set_up(comm, args, stack, *device)
        except ValueError as error:
            return fail(NAME, 2, error)
        last = min(parts.steps, args.stop_at or parts.steps)
        if parts.first >= last:
            if comm.rank == 0:
                print(f"nothing is left to do: {parts.resumed} is of step {parts.first} of {last}", flush=True)
            return 0
        if parts.thread:
            stack.enter_context(thread())
        saving = None
        if args.checkpoint:
            saving = stack.enter_context(Saving(stack.enter_context(Communicator(world)), args, parts))
        status = run(comm, args, parts, saving, stack)
    if args.elastic:
        from .survival import end

        end(status)
    return status


def run(comm, args, parts, saving, stack):
    """The exit status, after training, evaluation and the report."""
    from .training import report, resume

    records, start = [], time.perf_counter()
    if comm.rank == 0:
        print(report.heading(comm, parts), flush=True)
    if parts.metrics and parts.resumed:
        resume.cut(parts.metrics, parts.first)

    def attempt(comm, made):
        return comm, go_on(comm, args, parts, saving, records, made, start)

    if args.elastic:
        from .training.elastic import Elastic

        comm, (status, words) = Elastic(comm, args, parts, saving, records, stack).run(attempt)
    else:
        comm, (status, words) = attempt(comm, parts.first)
    if comm.rank == 0 and words:
        print(words, flush=True)
    return status


def go_on(comm, args, parts, saving, records, made, start):
    """(exit status, the report for people), after what is left when `made` steps are, and evaluation.

    Args:
        records: of the steps before; those of the next ones are appended.
        start: when training began (`time.perf_counter()`).
    """
    import numpy as np
    from tqdm import tqdm

    from .training import report, trace
    from .training.loop import evaluate, train
    from .training.optimizers import warmup_decay
    from .training.replicas import ReplicasDiffer, check
    from .training.saving import NotSaved

    def schedule(step):
        return parts.peak * warmup_decay(step, parts.steps, args.warmup)

    compare = args.check_replicas
    if compare is None:
        compare = options.CHECK_EVERY if comm.checked and args.sync not in sync.NONE else 0

    def after_step(step):
        if compare and step % compare == 0:  # before it is saved
            check(comm, parts.model.parameters, step)
        return bool(saving) and saving.after_step(step)

    limit = args.clip or None
    training = train(
        comm,
        parts.model,
        parts.optimizer,
        parts.data.train,
        parts.sampler,
        parts.steps,
        schedule,
        limit,
        first=made,
        after_step=after_step,
    )
    if saving and saving.ended:  # in the step after which ranks have died
        training = ()
    bar = tqdm(total=parts.steps, initial=made, unit="step", mininterval=0.5, disable=comm.rank != 0)
    with bar, np.errstate(over="ignore", invalid="ignore"):  # a loss that is not finite is reported instead
        try:
            for record in training:
                records.append(record)
                bar.set_postfix(loss=f"{record['loss']:.3f}", refresh=False)
                bar.update()
                write(parts.metrics, {"event": "step", **record})
                if not math.isfinite(record["loss"]):
                    what = f"the loss is {record['loss']} at step {record['step']}; try a lower --lr"
                    return fail(NAME, 1, what, comm.rank), ""
        except (FloatingPointError, NotSaved, ReplicasDiffer) as error:  # all ranks are here
            return fail(NAME, 1, error, comm.rank), ""
    seconds = time.perf_counter() - start
    if parts.timeline:
        shown = parts.timeline.gather(comm)
        if comm.rank == 0:
            trace.save(shown, args.timeline)
    if saving and saving.ended:
        return 0, saving.way_on()
    held_out = evaluate(comm, parts.whole, parts.data.held_out, parts.sampler.micro_batch)
    summary = report.summarise(comm, parts, records, seconds, held_out)
    write(parts.metrics, summary)
    alike = summary["replicas_identical"] or not summary["replicas_synchronised"]
    right = alike and summary["bytes_as_formula"] and math.isfinite(summary["eval_loss"])
    return 0 if right or comm.rank else 1, report.table(summary)


def write(metrics, record):
    """The record is a line of the metrics file, where there is one; a number that is not finite is null there."""
    if metrics:
        json_has = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in record.items()}
        metrics.write(json.dumps(json_has, allow_nan=False) + "\n")


if __name__ == "__main__":
    raise SystemExit(main())
