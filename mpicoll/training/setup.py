"""Everything a training run needs, made from its arguments, the same on all ranks. Collective."""

import functools
import math
from types import SimpleNamespace

import numpy as np

from . import optimizers, recipes, sync
from .data import read
from .ddp import DistributedDataParallel
from .layer_drop import LayerDrop
from .parameter_server import WorkersSampler
from .sampler import Sampler


def set_up(comm, args, stack, place, device):
    """Everything a run needs: data, sampler, model, optimizer, rate, steps, metrics (rank 0's open file or None).

    Args:
        place, device: from `devices.agree`.

    Raises:
        ValueError: on every rank; an argument or the data cannot be used.
    """
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
    content, metrics, problem = b"", None, None
    if comm.rank == 0:
        try:
            content = read(args.data)
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
