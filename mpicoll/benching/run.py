"""A whole measurement: what is to be measured, in order, and what is told of it."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI
from tqdm import tqdm

from .. import selection
from ..arrays import undefined
from ..command import open_results
from ..communicator import Communicator
from . import memory, overlap, picture, records, table, timing
from .buffers import Buffers, needed, rows_for
from .cases import Case, pattern_of, places, whole
from .contenders import Mpi, Ours
from .gloo import Gloo
from .limit import Limit
from .nccl import Nccl
from .options import OPS, REDUCING, ROOTED

Records = dict[bool, dict[str, Any]]  # of one contender and one size, by place


class Setting(NamedTuple):
    """All that a measurement needs.

    Attributes:
        args: what bench.parse returns.
        place: what brings a NumPy array to where the buffers are; device: that in words.
        need: bytes that a rank takes at most.
        ours, others: contenders, and those with which they are compared.
        around: records.environment.
        output: rank 0's open file of --json; None elsewhere and without.
    """

    world: MPI.Intracomm
    args: Any
    place: Callable[[Any], Any]
    device: str
    cases: list[Case]
    need: int
    ours: list[Ours]
    others: list[Any]
    around: dict[str, Any]
    output: Any


def prepare(world: MPI.Intracomm, args: Any, stack: contextlib.ExitStack, place: Any, device: str) -> Setting:
    """The Setting; nothing large is allocated yet. Collective.

    Raises:
        ValueError: on every rank; something cannot be measured as asked for.
    """
    cases = all_cases(world, args)
    ours, others = contenders(world, args, stack)
    need = {case: max(needed(case, in_place) for in_place in places(args.collective)) for case in cases}
    nodes = ours[0].comm.nodes
    memory.check(world, max(need.values()), nodes)  # before anybody asks the model about sizes that are out of reach
    most = max(nbytes + sum(who.scratch(case) for who in ours) for case, nbytes in need.items())
    memory.check(world, most, nodes)
    output = open_results(world, stack, args.json, "--plot", args.plot)
    return Setting(world, args, place, device, cases, most, ours, others, records.environment(world), output)


def run(setting: Setting) -> int:
    """The exit status, after all sizes are measured and told of. Collective."""
    world, args = setting.world, setting.args
    tell = print if world.rank == 0 else _nothing
    measured, against = places(args.collective), [peer.name for peer in setting.others]
    columns = measured, against, args.form == "nonblocking"
    tell("\n".join([*preamble(setting), *table.heading(*columns)]), flush=True)
    total = len(setting.cases) * len(measured) * (args.warmup_iters + args.iters)
    bar = tqdm(total=total, unit="turn", delay=3, mininterval=0.5, leave=False, disable=world.rank != 0 or None)
    everything: list[dict[str, Any]] = []
    notes: dict[str, None] = {}
    with bar:
        for case in setting.cases:
            rows = one_size(setting, case, bar.update, notes)
            bar.clear()
            for row in rows:
                tell(table.line(row, *columns))
                for in_place, found in row.items():
                    if found["wrong"]:
                        tell(f"# WRONG {found['algorithm']}, {table.NAMES[in_place]}: {found['first_wrong']}")
                    if setting.output:
                        setting.output.write(json.dumps(found) + "\n")
                    everything.append(found)
            sys.stdout.flush()
    tell("\n".join([*(f"# {note}" for note in notes), *table.footer(everything)]), flush=True)
    if args.plot and world.rank == 0:
        picture.save(everything, args.plot)
    return int(world.rank == 0 and any(found["wrong"] for found in everything))


def _nothing(*_: Any, **__: Any) -> None:
    pass


def all_cases(world: MPI.Intracomm, args: Any) -> list[Case]:
    """What is to be measured, in order: types, operations, sizes.

    Raises:
        ValueError: something makes no sense.
    """
    name = args.collective
    if args.root >= world.size:
        raise ValueError(f"-r {args.root}: ranks go from 0 to {world.size - 1}")
    if name == "barrier":
        return [Case(name, np.dtype("uint8"), None, None, world.rank, world.size, 0)]
    ops: list[str | None] = [None]
    if name in REDUCING:
        ops = list(OPS) if args.op == "all" else [args.op]
    root = args.root if name in ROOTED else None
    found = []
    for dtype in map(np.dtype, args.types):
        if args.minbytes < dtype.itemsize and len(args.types) == 1:
            raise ValueError(f"-b {args.minbytes} is less than one {dtype}, which has {dtype.itemsize} bytes")
        counts = dict.fromkeys(whole(name, nbytes, dtype.itemsize, world.size) for nbytes in args.sizes)
        for op in ops:
            if why := op and undefined(op, dtype):
                if args.op != "all" and args.datatype != "all":
                    raise ValueError(f"-o {op} -d {args.datatype}: {why}")
                continue
            found += [Case(name, dtype, op, root, world.rank, world.size, count) for count in counts]
    return found


def contenders(world: MPI.Intracomm, args: Any, stack: contextlib.ExitStack) -> tuple[list[Ours], list[Any]]:
    """Ours, and those with which they are compared.

    Raises:
        ValueError: there is no such algorithm, or a peer is not installed.
    """
    algorithms: list[str | None] = [None]
    if args.algorithm == "all":
        algorithms = list(selection.family(args.collective))
    elif args.algorithm:
        algorithms = [selection.forced(args.collective, name).algorithm for name in args.algorithm.split(",")]
    others: list[Any] = [
        stack.enter_context({"mpi": Mpi, "gloo": Gloo, "nccl": Nccl}[name](world, args.device == "gpu"))
        for name in args.compare
    ]
    make: Any = Communicator  # untyped
    ours = [Ours(stack.enter_context(make(world)), args.form, name) for name in algorithms]
    return ours, [*others, Limit(ours[0])] if args.limit else others


def one_size(setting: Setting, case: Case, tick: Callable[[], object], notes: dict[str, None]) -> list[Records]:
    """The records of every contender. Collective.

    Args:
        tick: is called after each repetition.
        notes: gets why a peer is not compared or not checked.
    """
    world, args, ours = setting.world, setting.args, setting.ours
    pattern = pattern_of(case.dtype, case.op, case.size, setting.place)
    rows: dict[Any, Records] = {}
    for in_place in places(case.collective):
        peers = []
        for peer in setting.others:
            if why := peer.refusal(case, in_place):
                notes[f"{peer.name} is not compared {table.NAMES[in_place]}: {why}"] = None
                continue
            peers.append(peer)
            if args.check and (why := peer.unchecked(case)):
                notes[f"{peer.name} is not checked: {why}"] = None
        buffers = Buffers(case, in_place, pattern, rows_for(case.nbytes), setting.place)
        found = timing.measure(
            world, [*ours, *peers], case, buffers, args.warmup_iters, args.iters, bool(args.check), tick
        )
        for who, took in zip([*ours, *peers], found, strict=True):
            made = records.record(case, in_place, who, took, args, setting.around)
            if who in ours:
                theirs = zip(peers, found[len(ours) :], strict=True)
                made["ratio"] = {peer.name: timing.ratio(took, other) for peer, other in theirs}
                if args.form == "nonblocking":
                    checked = made["wrong"] is not None
                    beside = overlap.measure(world, who, case, buffers, args.iters, setting.place, checked)
                    made["overlap"] = beside.found
                    if beside.wrong:
                        made["wrong"] += beside.wrong
                        made["first_wrong"] = made["first_wrong"] or beside.first
            rows.setdefault(who, {})[in_place] = made
    return list(rows.values())


def preamble(setting: Setting) -> list[str]:
    """What is measured, on what, in nccl-tests' manner."""
    args, around = setting.args, setting.around
    step = f"{args.stepbytes}(bytes)" if args.stepbytes else f"{args.stepfactor or 2}(factor)"
    lines = [
        f"# {args.collective}, {args.form}; {setting.world.size} ranks, {around['mpi']}, {setting.device}",
        f"# minBytes {args.minbytes} maxBytes {args.maxbytes} step: {step} warmup iters: {args.warmup_iters} iters: "
        f"{args.iters} validation: {args.check}",
        "#",
        "# Using hosts",
    ]
    hosts = enumerate(zip(around["pids"], around["hosts"], strict=True))
    lines += [f"#  Rank {rank:>2} Pid {pid:>6} on {host}" for rank, (pid, host) in hosts]
    return [*lines, f"# {memory.told(setting.need)}"]
