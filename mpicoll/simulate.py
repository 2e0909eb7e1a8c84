"""Answers what data-parallel training will cost, before anybody has rented a GPU.

    python -m mpicoll.simulate problems                                       the lesson's problems as commands
    python -m mpicoll.simulate allreduce --bytes 500M -n 8 --links nvlink4 ndr
    python -m mpicoll.simulate step --parameters 7B -n 64 --links ndr --compute-ms 400

No GPU and no MPI is needed: bytes, links and closed forms. Links are named as in mpicoll/links.py: nvlink4, ndr, xdr,
nvlink4x8+ndr (8 GPUs on NVLink 4 in each node, NDR between nodes), 5us/20GB/s (your own), ndr-sharp (the switches add).
Sizes are decimal, as in the lesson: 500M is 500,000,000 bytes, 25MiB is 26,214,400. The GPU is an H100 by default.

Exit status: 0 if the question has an answer; 2 if an argument is wrong.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from typing import Any

from . import plot
from .algorithms.cut import even
from .command import Parser, fail, of
from .simulation import answers, budget, fabric, pictures, planning, problems, state, sweep
from .simulation.step import Job, simulate
from .simulation.text import Answer
from .simulation.units import (
    in_bytes,
    in_count,
    parse_bytes,
    parse_count,
    parse_positive,
    parse_share,
    parse_whole,
)

LAYERS = 32
ITEMSIZE = {"fp32": 4, "bf16": 2, "fp16": 2, "fp8": 1}


def main(argv: Sequence[str] | None = None) -> int:
    """The exit status, after the answer is printed."""
    args = parse(argv)
    try:
        if getattr(args, "svg", None):
            plot.check("--svg", args.svg)
        answer: Answer = args.answer(args)
    except (ValueError, OSError) as error:
        message = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else error
        return fail(f"mpicoll.simulate {args.command}", 2, message)
    print(json.dumps(answer.data) if args.json else "\n".join(answer.lines))
    return 0


def several(kind: Callable[[str], Any]) -> Callable[[str], Any]:
    """The type of a list with commas."""
    return lambda text: [kind(part) for part in text.split(",")]


nbytes, count, whole = of(parse_bytes), of(parse_count), of(parse_whole)
positive, share = of(parse_positive), of(parse_share)


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The arguments; `answer` is the function that turns them into an Answer."""
    parser = Parser(prog="mpicoll.simulate", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, answer: Callable[[argparse.Namespace], Answer], purpose: str) -> Callable[..., Any]:
        sub = commands.add_parser(name, help=purpose, description=f"{purpose}.")
        sub.set_defaults(answer=answer)
        sub.add_argument("--json", action="store_true", help="print the numbers as JSON (bytes, seconds)")
        return sub.add_argument

    add = command("allreduce", allreduce, "bytes and time of one all-reduce")
    add("--bytes", type=nbytes, required=True, default=argparse.SUPPRESS, help="of the buffer, such as 500M")
    add("-n", type=several(whole), default="8", metavar="N,N,...", help="GPUs")
    add("--links", nargs="+", default=["nvlink4", "ndr"], help="one or several, compared in this order")
    add("--algorithm", help="ring, hierarchical, in_network, or one of mpicoll's; None: what suits the links")

    add = command("step", step, "one data-parallel training step: timeline, bounds, verdict, what would change it")
    add("-n", type=whole, default=64, metavar="N", help="GPUs")
    training(add)
    add("--gpu-memory", type=nbytes, default=in_bytes(state.H100.memory), help="of a GPU")
    add("--svg", metavar="FILE", help="the timeline as a picture, .svg or .png")

    add = command("scaling", scaling, "strong and weak scaling over numbers of GPUs")
    add("-n", type=several(whole), default="8,16,32,64,128,256,512", metavar="N,N,...", help="GPUs, ascending")
    training(add)
    add("--svg", metavar="FILE", help="speed-up and efficiency as a picture, .svg or .png")

    add = command("chatty", chatty, "an all-reduce in every layer, placed inside nodes against across them")
    add("-n", type=whole, default=8, metavar="N", help="GPUs of a group, GPUs of a node, and number of nodes")
    add("--bytes", type=nbytes, default="64M", help="of one all-reduce (tokens x width x 2, in bf16)")
    add("--layers", type=whole, default=32, help="layers")
    add("--per-layer", type=whole, default=4, help="all-reduces per layer and step (tensor parallelism: 2 + 2)")
    add("--inside", default="nvlink4", help="links in a node")
    add("--across", default="ndr", help="links between nodes")
    add("--parameters", type=count, default="7B", help="of the model; a GPU has 1/N of them, with bf16 gradients")
    add("--compute-ms", type=positive, default=400, help="forward and backward on a GPU")

    add = command("memory", memory, "memory per GPU under data parallelism and ZeRO-1, 2, 3; the largest model")
    add("--parameters", type=count, required=True, default=argparse.SUPPRESS, help="such as 7B")
    add("-n", type=several(whole), default=[64], metavar="N,N,...", help="GPUs")
    add("--gpu-memory", type=nbytes, default=in_bytes(state.H100.memory), help="of a GPU")

    add = command("budget", cost_of_run, "FLOPs, GPU hours and days of a training run")
    add("--parameters", type=count, help="N; with --tokens, FLOPs = 6 N D")
    add("--tokens", type=count, help="D")
    add("--flops", type=count, help="such as 1e25; instead of --parameters and --tokens")
    add("--mfu", type=share, default=0.4, help="useful share of the peak, up to 1; ignored with --gpu-hours")
    add("--gpu-hours", type=count, help="of all GPUs together; with FLOPs, the MFU follows")
    add("--gpus", type=whole, default=1, help="GPUs")
    gpu(add)

    add = command("batch", batch, "the global batch: local batch x GPUs x accumulation")
    add("--local", type=whole, required=True, default=argparse.SUPPRESS, help="samples that a GPU computes at a time")
    add("-n", type=several(whole), required=True, default=argparse.SUPPRESS, metavar="N,N,...", help="GPUs")
    add("--accumulation", type=whole, help="micro-batches per step; None: 1, or what --global-batch needs")
    add("--global-batch", type=whole, help="samples per step; accumulation follows")

    command("problems", lambda args: problems.listing(), "the lesson's worked problems, with the command for each")
    return parser.parse_args(argv)


def gpu(add: Callable[..., Any]) -> None:
    """The arguments that say what a GPU can do."""
    add("--peak", type=count, default=in_count(state.H100.peak), help="FLOP/s of a GPU in dense bf16")
    add("--hbm", type=count, default=in_count(state.H100.hbm), help="B/s of a GPU's memory")


def training(add: Callable[..., Any]) -> None:
    """The arguments that describe a step."""
    add(
        "--parameters",
        type=several(count),
        required=True,
        default=argparse.SUPPRESS,
        help="in all, or with commas one number per layer",
    )
    add("--dtype", choices=sorted(ITEMSIZE), default="bf16", help="of the gradients")
    add("--links", default="ndr", help="between GPUs")
    add("--algorithm", help="of the all-reduce: ring, hierarchical, in_network, or one of mpicoll's; None: what suits")
    add("--compute-ms", type=positive, help="forward and backward on a GPU; None: from --tokens")
    add("--tokens", type=count, help="per GPU and step: computing takes 6 x parameters x tokens FLOPs")
    add("--mfu", type=share, default=0.4, help="useful share of the peak, up to 1, with --tokens")
    add("--backward-ms", type=several(positive), help="in all, or one number per layer; None: 2/3 of computing")
    add("--layers", type=whole, help=f"equal layers; None: {LAYERS}, or as many as are given one by one")
    add("--tensors", type=whole, default=7, help="equal parameters (arrays) in a layer")
    add("--bucket-cap-mb", type=positive, default=25, help="MiB per gradient bucket (the first: 1 at most)")
    gpu(add)


def job(args: argparse.Namespace) -> Job:
    """The step that the arguments describe; layers given one by one are in forward order.

    Raises:
        ValueError: they do not fit together.
    """
    total = sum(args.parameters)
    given = [len(x) for x in (args.parameters, args.backward_ms or [0]) if len(x) > 1]
    layers = args.layers or (given[0] if given else LAYERS)
    if any(length != given[0] for length in given):
        raise ValueError(
            f"--parameters has {given[0]} layers, --backward-ms has {given[1]}: one number for each, or one in all"
        )
    if any(length != layers for length in given):
        raise ValueError(f"--layers is {args.layers}, and {given[0]} are given one by one")
    if len(args.parameters) == 1 and given and not args.layers:
        raise ValueError(
            f"--backward-ms has {layers} layers, --parameters one number: give one for each, or --layers {layers} if "
            f"they are equal"
        )
    if (args.compute_ms is None) == (args.tokens is None):
        raise ValueError("give --compute-ms, or --tokens per GPU to have it computed (one of the two)")
    if args.compute_ms is not None:
        compute = args.compute_ms / 1e3
    else:
        compute = 6 * total * args.tokens / (args.peak * args.mfu)
    backward = [x / 1e3 for x in args.backward_ms] if args.backward_ms else [compute * 2 / 3]
    if sum(backward) > compute * (1 + 1e-9):
        raise ValueError(f"backward takes {sum(backward) * 1e3:g} ms of {compute * 1e3:g} ms for forward and backward")
    return Job(
        layers=[round(x) for x in args.parameters] if len(args.parameters) > 1 else even(round(total), layers),
        tensors=args.tensors,
        itemsize=ITEMSIZE[args.dtype],
        forward=max(0.0, compute - sum(backward)),
        backward=backward if len(backward) > 1 else [backward[0] / layers] * layers,
        memory=total * state.TRAFFIC_PER_PARAMETER / args.hbm,
        bucket_cap_mb=args.bucket_cap_mb,
    )


def allreduce(args: argparse.Namespace) -> Answer:
    return answers.allreduce(args.bytes, args.n, args.links, args.algorithm)


def step(args: argparse.Namespace) -> Answer:
    result = simulate(job(args), fabric.build(args.links, args.n, args.algorithm))
    if args.svg:
        pictures.timeline(result, args.svg)
    return answers.step(result, args.gpu_memory)


def scaling(args: argparse.Namespace) -> Answer:
    if args.n != sorted(set(args.n)):
        raise ValueError(f"-n: {','.join(map(str, args.n))} is not ascending")
    points = sweep.scaling(job(args), [fabric.build(args.links, n, args.algorithm) for n in args.n])
    if args.svg:
        pictures.scaling(points, args.svg)
    return answers.scaling(points, job(args))


def chatty(args: argparse.Namespace) -> Answer:
    if args.n == 1:
        raise ValueError("-n: a group of 1 GPU does not communicate; take 2 or more")
    calls, gradients = args.layers * args.per_layer, args.parameters / args.n * ITEMSIZE["bf16"]
    return answers.chatty(args.n, args.inside, args.across, args.bytes, calls, gradients, args.compute_ms / 1e3)


def memory(args: argparse.Namespace) -> Answer:
    return planning.memory(args.parameters, args.n, args.gpu_memory)


def cost_of_run(args: argparse.Namespace) -> Answer:
    flops, rule = args.flops, ""
    if args.parameters and args.tokens and not flops:
        flops, rule = 6 * args.parameters * args.tokens, f"6 x {in_count(args.parameters)} x {in_count(args.tokens)} = "
    elif args.parameters or args.tokens:
        raise ValueError("give --parameters and --tokens together and without --flops")
    run = budget.budget(flops, args.mfu, args.gpu_hours, args.gpus, args.peak)
    return planning.budget(run, rule, state.Gpu(args.peak, args.hbm, state.H100.memory))


def batch(args: argparse.Namespace) -> Answer:
    return planning.batch([budget.batch(args.local, n, args.accumulation, args.global_batch) for n in args.n])


if __name__ == "__main__":
    raise SystemExit(main())
