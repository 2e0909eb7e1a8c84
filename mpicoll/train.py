"""Trains a model, data-parallel: mpirun -np 8 python -m mpicoll.train

By default a small GPT reads characters of English; --model mlp is a simpler one, --data digits are images.

Every rank holds a replica of the model and computes its share of every global batch; the gradients are averaged while
backward goes on (training/reducer.py), and all replicas make the same step. At the end it prints what was learnt, where
the time went, whether the bytes sent are those of the formula and whether all replicas are bit-identical.

Exit status: 0 if all is right; 1 if bytes or replicas differ or the loss is not finite; 2 if an argument is wrong.
"""

import argparse
import contextlib
import functools
import json
import math
import os
import sys
import time
from types import SimpleNamespace

from . import runtime
from .training import recipes, sync


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


def fraction(text):
    """The type of an argument from 0 to 1."""
    value = float(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text} is not a number from 0 to 1")
    return value


def parse(argv):
    """The arguments; help and errors are printed by rank 0 only, and before MPI starts."""
    parser = Parser(prog="mpicoll.train", description=__doc__, formatter_class=Formatter)
    add = parser.add_argument
    add("--model", choices=("gpt", "mlp"), default="gpt", help="gpt predicts at every position, mlp after the last one")
    add("--preset", choices=recipes.GPTS, help="the GPT's sizes, batch, steps and rate; None: tiny")
    add("--data", metavar="FILE", help="UTF-8 text, read by rank 0, or digits; None: the documentation of CPython")
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--steps", type=at_least(1), help=f"steps to train for; None: {told('steps')}")
    length.add_argument("--epochs", type=at_least(0.001, float), help="instead: times that the data are learnt")
    add("--global-batch", type=at_least(1), help=f"samples per step over all ranks; None: {told('global_batch')}")
    add("--micro-batch", type=at_least(1), help="samples a rank computes at a time; None: its whole share")
    add("--context", type=at_least(1), help=f"characters from which the next one is predicted; None: {told('context')}")
    add("--layers", type=at_least(0), help=f"blocks of a GPT, hidden layers of an MLP; None: {told('layers')}")
    add("--width", type=at_least(1), help=f"of a GPT; None: {told('width')}")
    add("--heads", type=at_least(1), help=f"of a GPT's attention; None: {told('heads')}")
    add("--hidden", type=at_least(1), help=f"width of an MLP's hidden layer; None: {told('hidden')}")
    add("--embedding", type=at_least(1), help=f"width of a character in an MLP; None: {told('embedding')}")
    add("--optimizer", choices=("adamw", "sgd"), default="adamw", help="SGD has a momentum of 0.9")
    rates = told("lr", lambda lr: f"{lr['adamw']:g} or {lr['sgd']:g}")
    add("--lr", type=at_least(0, float), help=f"peak learning rate, for AdamW or SGD; None: {rates}")
    rule = "what the rate is multiplied by for another batch than the default: 1, or their ratio, or its root"
    add("--lr-rule", choices=tuple(recipes.LR_RULES), default="none", help=rule)
    add("--warmup", type=fraction, default=0.05, help="part of the steps in which the rate rises, before its cosine")
    add("--clip", type=at_least(0, float), help=f"largest norm of the gradients, 0: any; None: {told('clip')}")
    add("--seed", type=at_least(0), default=0, help="of the initial weights and of the order of the samples")
    add("--device", choices=("auto", "cpu", "gpu"), default="auto", help="auto: GPUs if every rank has one")
    add("--algorithm", help="of the all-reduce, by name; None: chosen by size")
    add("--bucket-cap-mb", type=at_least(0, float), default=25, help="MiB per gradient bucket (the first: 1 at most)")
    add("--sync", choices=tuple(sync.MODES), default="allreduce", help="; ".join(map(": ".join, sync.MODES.items())))
    add("--dedicated-server", action="store_true", help="with --sync parameter-server: rank 0 computes no gradients")
    add("--wire-dtype", choices=sync.WIRES, help="gradients travel so, with error feedback; None: as they are")
    add("--no-overlap", action="store_true", help="communicate only when backward has ended, whatever --sync")
    add("--layer-drop", type=fraction, default=0, help="probability that a rank leaves out a half block of a GPT")
    add("--find-unused-parameters", action="store_true", help="layers may be left out; needed by --layer-drop")
    add("--check-finite", action="store_true", help="end with parameter and rank if a gradient is not finite")
    add("--progress-thread", action="store_true", help="a thread drives communication beside the computation")
    add("--metrics", metavar="FILE", help="JSON lines: one per step, then a summary")
    with contextlib.ExitStack() as stack:
        if runtime.launched_rank():
            nowhere = stack.enter_context(open(os.devnull, "w"))
            stack.enter_context(contextlib.redirect_stdout(nowhere))
            stack.enter_context(contextlib.redirect_stderr(nowhere))
        args = parser.parse_args(argv)
        try:
            recipes.complete(args)
            sync.check(args)
        except ValueError as error:
            parser.error(str(error))
        return args


def told(name, words="{:g}".format):
    """The values of the recipes that have this argument, for --help."""
    found = {recipe: words(values[name]) for recipe, values in recipes.RECIPES.items() if name in values}
    return ", ".join(f"{value} ({recipe})" for recipe, value in found.items())


def set_up(comm, args, stack, place, device):
    """Everything a run needs: data, sampler, model, optimizer, rate, steps, metrics (rank 0's open file or None).

    Args:
        place, device: from `devices.agree`.

    Raises:
        ValueError: on every rank; an argument or the data cannot be used.
    """
    from .training import optimizers
    from .training.ddp import DistributedDataParallel
    from .training.layer_drop import LayerDrop
    from .training.parameter_server import WorkersSampler
    from .training.sampler import Sampler

    content, metrics = open_files(comm, args, stack)
    data = recipes.load(args, content).to(place)
    sampler = (WorkersSampler if args.dedicated_server else Sampler)(
        len(data.train), args.global_batch, comm.rank, comm.size, args.seed, args.micro_batch, stride=data.predicted
    )
    whole = recipes.build(args, data).to(place)
    model = DistributedDataParallel(
        LayerDrop(whole, args.layer_drop, args.seed, comm.rank) if args.layer_drop else whole,
        comm,
        find_unused_parameters=args.find_unused_parameters,
        check_finite=args.check_finite,
        algorithm=args.algorithm,
        **sync.options(args),
    )
    rate, words = recipes.peak_rate(args)
    make = functools.partial({"adamw": optimizers.AdamW, "sgd": optimizers.SGD}[args.optimizer], lr=rate)
    served = args.sync == "parameter-server"
    optimizer = model.exchange.optimizer(model, make) if served else make(model.parameters)
    steps = args.steps
    if args.epochs is not None:
        steps = math.ceil(args.epochs * sampler.count / args.global_batch)
    rise = optimizers.warmup_steps(steps, args.warmup)
    words = f"{args.optimizer}, {words}; rises for {rise} of {steps} steps, then falls along a cosine"
    words += f"; gradients clipped to a norm of {args.clip:g}" if args.clip else ""
    return SimpleNamespace(
        device=device,
        data=data,
        sampler=sampler,
        whole=whole,
        model=model,
        optimizer=optimizer,
        words=recipes.words(args),
        rate=words,
        peak=rate,
        sync=sync.words(args),
        steps=steps,
        metrics=metrics,
    )


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
                    return fail(comm, 1, f"the loss is {record['loss']} at step {record['step']}; try a lower --lr")
        except FloatingPointError as error:  # --check-finite; all ranks are here
            return fail(comm, 1, error)
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
