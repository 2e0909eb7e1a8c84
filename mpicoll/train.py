"""Trains a character-level language model, data-parallel: mpirun -n 8 python -m mpicoll.train

Every rank holds a replica of the model and computes its share of every global batch; the gradients are averaged while
backward goes on (training/reducer.py), and all replicas make the same step. At the end it prints what was learnt, where
the time went, whether the bytes sent are those of the formula and whether all replicas are bit-identical.

Exit status: 0 if all is right; 1 if bytes or replicas differ or the loss is not finite; 2 if an argument is wrong.
"""

import argparse
import contextlib
import json
import math
import os
import sys
import time
from types import SimpleNamespace

from . import runtime

DEFAULT_LR = {"adamw": 2e-3, "sgd": 0.1}


def main(argv=None):
    """The exit status of training as the arguments say; failure is rank 0's to report, the others' status is 0.

    A launcher ends all ranks as soon as one has failed: what rank 0 has to say would be lost.
    """
    args = parse(argv)
    runtime.limit_threads()
    from .training import devices

    found = devices.find(args.device)
    from mpi4py import MPI

    from .communicator import Communicator
    from .progress import thread

    world = MPI.COMM_WORLD
    with contextlib.ExitStack() as stack:
        try:
            device = devices.agree(world, args.device, found)
            comm = stack.enter_context(Communicator(world))
            parts = set_up(comm, args, stack, *device)
        except ValueError as error:
            return fail(world, 2, error)
        if args.progress_thread:
            stack.enter_context(thread())
        return run(comm, args, parts)


def fail(comm, status, message):
    """`status` on rank 0, which has said why, and 0 elsewhere."""
    if comm.rank:
        return 0
    print(f"mpicoll.train: error: {message}", file=sys.stderr, flush=True)
    return status


class Parser(argparse.ArgumentParser):
    def error(self, message):
        status = 0 if runtime.launched_rank() else 2  # see main
        self.exit(status, f"{self.prog}: error: {message} (--help lists the arguments)\n")


class Formatter(argparse.ArgumentDefaultsHelpFormatter, argparse.RawDescriptionHelpFormatter):
    """Shows defaults and keeps the lines of the description."""


def at_least(least, kind=int):
    """The type of an argument that is a finite number, not below `least`."""

    def number(text):
        value = kind(text)
        if not least <= value < math.inf:
            raise argparse.ArgumentTypeError(f"{text} is not a number from {least} up")
        return value

    number.__name__ = kind.__name__  # what argparse calls it in "invalid int value"
    return number


def parse(argv):
    """The arguments; help and errors are printed by rank 0 only, and before MPI starts."""
    parser = Parser(prog="mpicoll.train", description=__doc__, formatter_class=Formatter)
    add = parser.add_argument
    rates = ", ".join(f"{lr} for {name}" for name, lr in DEFAULT_LR.items())
    add("--data", metavar="FILE", help="UTF-8 text, read by rank 0; None: the documentation that ships in CPython")
    add("--steps", type=at_least(1), default=800, help="steps to train for")
    add("--global-batch", type=at_least(1), default=1680, help="samples per step over all ranks")
    add("--micro-batch", type=at_least(1), help="samples a rank computes at a time; None: its whole share")
    add("--context", type=at_least(1), default=16, help="characters from which the next one is predicted")
    add("--embedding", type=at_least(1), default=24, help="width of a character's embedding")
    add("--hidden", type=at_least(1), default=512, help="width of a hidden layer")
    add("--layers", type=at_least(0), default=2, help="hidden layers")
    add("--optimizer", choices=sorted(DEFAULT_LR), default="adamw", help="SGD has a momentum of 0.9")
    add("--lr", type=at_least(0, float), help=f"peak learning rate: linear warm-up, cosine decay; None: {rates}")
    add("--seed", type=at_least(0), default=0, help="of the initial weights and of the order of the samples")
    add("--device", choices=("auto", "cpu", "gpu"), default="auto", help="auto: GPUs if every rank has one")
    add("--algorithm", help="of the all-reduce, by name; None: chosen by size")
    add("--bucket-cap-mb", type=at_least(0, float), default=25, help="MiB per gradient bucket (the first: 1 at most)")
    add("--no-overlap", action="store_true", help="communicate only when backward has ended")
    add("--progress-thread", action="store_true", help="a thread drives communication beside the computation")
    add("--metrics", metavar="FILE", help="JSON lines: one per step, then a summary")
    with contextlib.ExitStack() as stack:
        if runtime.launched_rank():
            nowhere = stack.enter_context(open(os.devnull, "w"))
            stack.enter_context(contextlib.redirect_stdout(nowhere))
            stack.enter_context(contextlib.redirect_stderr(nowhere))
        return parser.parse_args(argv)


def set_up(comm, args, stack, place, device):
    """Everything a run needs: text, sampler, model, reducer, optimizer, metrics (rank 0's open file or None).

    Args:
        place, device: from `devices.agree`.

    Raises:
        ValueError: on every rank; an argument or the data cannot be used.
    """
    from .training import data, optimizers
    from .training.ddp import DistributedDataParallel
    from .training.models import CharMLP
    from .training.sampler import Sampler

    content, metrics = open_files(comm, args, stack)
    text = data.Text(content, args.context, f"data file {args.data}" if args.data else "the text").to(place)
    sampler = Sampler(len(text.train), args.global_batch, comm.rank, comm.size, args.seed, args.micro_batch)
    model = CharMLP(len(text.vocabulary), args.context, args.embedding, args.hidden, args.layers, args.seed)
    model = DistributedDataParallel(
        model.to(place), comm, args.bucket_cap_mb, overlap=not args.no_overlap, algorithm=args.algorithm
    )
    kind = {"adamw": optimizers.AdamW, "sgd": optimizers.SGD}[args.optimizer]
    optimizer = kind(model.parameters, DEFAULT_LR[args.optimizer] if args.lr is None else args.lr)
    return SimpleNamespace(device=device, text=text, sampler=sampler, model=model, optimizer=optimizer, metrics=metrics)


def open_files(comm, args, stack):
    """The bytes of the data on every rank, read by rank 0 alone, and the metrics file, which only rank 0 has.

    Raises:
        ValueError: on every rank, though only rank 0's message says why.
    """
    import numpy as np

    from .training import data

    content, metrics, problem = b"", None, None
    if comm.rank == 0:
        try:
            content = data.read(args.data)
            if args.metrics:
                metrics = stack.enter_context(open(args.metrics, "w", encoding="utf-8"))  # noqa: SIM115 the stack closes it
        except ValueError as error:
            problem = error
        except OSError as error:
            problem = f"metrics file {args.metrics}: {error.strerror}"
    # All ranks learn of rank 0's problem here, instead of waiting for a text that never comes.
    length = int(comm.broadcast(np.array([-1 if problem else len(content)]))[0])
    if length < 0:
        raise ValueError(problem)
    array = np.frombuffer(content, np.uint8).copy() if comm.rank == 0 else np.empty(length, np.uint8)
    return comm.broadcast(array).tobytes(), metrics


def run(comm, args, parts):
    """The exit status, after training, evaluation and the report."""
    import numpy as np
    from tqdm import tqdm

    from .training import report
    from .training.loop import evaluate, train
    from .training.optimizers import warmup_decay

    peak, records = parts.optimizer.lr, []

    def schedule(step):
        return peak * warmup_decay(step, args.steps)

    if comm.rank == 0:
        print(report.heading(comm, parts), flush=True)
    start = time.perf_counter()
    training = train(comm, parts.model, parts.optimizer, parts.text.train, parts.sampler, args.steps, schedule)
    bar = tqdm(total=args.steps, unit="step", mininterval=0.5, disable=comm.rank != 0)
    with bar, np.errstate(over="ignore", invalid="ignore"):  # a loss that is not finite is reported instead
        for record in training:
            records.append(record)
            bar.set_postfix(loss=f"{record['loss']:.3f}", refresh=False)
            bar.update()
            write(parts.metrics, {"event": "step", **record})
            if not math.isfinite(record["loss"]):
                return fail(comm, 1, f"the loss is {record['loss']} at step {record['step']}; try a lower --lr")
    seconds = time.perf_counter() - start
    held_out = evaluate(comm, parts.model, parts.text.held_out)
    summary = report.summarise(comm, parts, records, seconds, held_out, args.algorithm)
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
