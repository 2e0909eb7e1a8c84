"""Everything a training run needs, made from its arguments, the same on all ranks. Collective."""

import functools
import math
from types import SimpleNamespace

import numpy as np

from . import checkpoint, driving, optimizers, recipes, reproducible, resume, sync, timeline, trace
from .data import read
from .ddp import DistributedDataParallel
from .layer_drop import LayerDrop
from .loss_scale import LossScaled
from .parameter_server import WorkersSampler
from .sampler import Sampler


def set_up(comm, args, stack, place, device):
    """Everything a run needs: data, sampler, model, optimizer, rate, metrics (rank 0's open file or None).

    Of its `steps`, `first` are made already, where it goes on from a checkpoint: `resumed`, its path. `lost` says in
    words which ranks have died, and of the first `expected_of` steps made with them, `expected_bytes` were to be sent.

    Args:
        place, device: from `devices.agree`.

    Raises:
        ValueError: on every rank; an argument or the data cannot be used.
    """
    resumed = resume.read(comm, args)
    reproducible.check_ranks(args, comm.size)
    content, metrics = open_files(comm, args, stack, resumed)
    data = recipes.load(args, content).to(place)
    if resumed:
        resume.check_data(resumed, data)
    whole = recipes.build(args, data).to(place)
    first = resumed.about["step"] if resumed else 0
    sampler, model = share_out(comm, args, data, whole, first)
    before = model.formula_bytes() if args.rebuild_buckets else 0  # in the first step, with the first buckets
    thread = args.progress_thread
    if thread is None:
        thread = driving.by_thread(len(set(comm.nodes)), place is np.asarray)
    rate, words = recipes.peak_rate(args)
    make = functools.partial({"adamw": optimizers.AdamW, "sgd": optimizers.SGD}[args.optimizer], lr=rate)
    served = args.sync == "parameter-server"
    optimizer = model.exchange.optimizer(model, make) if served else make(model.parameters)
    optimizer = LossScaled(optimizer) if args.precision == "mixed-float16" else optimizer
    steps = args.steps
    if args.epochs is not None:
        steps = math.ceil(args.epochs * sampler.count / args.global_batch)
    if resumed:
        resume.restore(comm, resumed, model, optimizer)
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
        precision=args.precision,
        rate=words,
        peak=rate,
        sync=sync.words(args) + reproducible.words(args),
        first=first,
        steps=steps,
        resumed=resumed and resumed.path,
        metrics=metrics,
        thread=thread,
        timeline=timeline.Timeline(model, optimizer, first) if args.timeline else None,
        lost=[],
        expected_bytes=before,
        expected_of=int(args.rebuild_buckets),
    )


def share_out(comm, args, data, whole, first):
    """(sampler, model): this rank's share of the work from step `first` on, and `whole`, trained by all ranks.

    Raises:
        ValueError: on every rank; so many ranks cannot share it, or an argument cannot be used.
    """
    sampler = (WorkersSampler if args.dedicated_server else Sampler)(
        len(data.train), args.global_batch, comm.rank, comm.size, args.seed, args.micro_batch, stride=data.predicted
    )
    options = sync.options(args)
    if options["bucket_cap_mb"] is None:
        nbytes = sum(p.data.nbytes for p in whole.parameters)
        options["bucket_cap_mb"] = driving.bucket_cap_mb(len(set(comm.nodes)), nbytes)
    own = whole
    if args.layer_drop:
        own = LayerDrop(whole, args.layer_drop, args.seed, comm.rank)
        own.forwards = first * sampler.accumulation
    model = DistributedDataParallel(
        own,
        comm,
        find_unused_parameters=args.find_unused_parameters,
        check_finite=args.check_finite,
        algorithm=args.algorithm,
        reproducible=args.reproducible,
        **options,
    )
    return sampler, model


def open_files(comm, args, stack, resumed):
    """The bytes of the data on every rank, read by rank 0 alone, and the metrics file, which only rank 0 has.

    Raises:
        ValueError: on every rank; a file or the folder for checkpoints cannot be used.
    """
    metrics = []

    def make():
        content = read(args.data)
        if args.checkpoint:
            checkpoint.prepare(args.checkpoint, resumed and resumed.path)
        if args.timeline:
            trace.check(args.timeline)
        if args.metrics:
            try:
                file = open(args.metrics, "a+" if resumed else "w", encoding="utf-8", buffering=1)  # noqa: SIM115
            except OSError as error:
                raise ValueError(f"metrics file {args.metrics}: {error.strerror}") from None
            metrics.append(stack.enter_context(file))
        return content

    return resume.from_rank_0(comm, make), metrics[0] if metrics else None
