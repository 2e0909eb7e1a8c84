"""What the commands on memory, budgets and batches print."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from . import budget as budgets
from . import state
from .state import Gpu
from .text import Answer, notes, percent, table
from .units import DAY, HOUR, digits, in_bytes, in_count, in_time


def memory(parameters: float, sizes: Sequence[int], room: float) -> Answer:
    """State per GPU by stage, whether it fits into `room` bytes, and the largest model that does."""
    rows, data = [], []
    for stage, size in itertools.product(state.STAGES, sizes):
        each, least = stage.per_parameter(size), stage.least_size(parameters, room)
        held, largest = each * parameters, room / each
        fits = "yes" if held <= room else "no", "never" if least is None else f"from N = {least}"
        numbers = f"{digits(each)} B", in_bytes(held), *fits, in_count(largest), f"{stage.messages} (N-1)/N W"
        rows.append([stage.name, str(size), *numbers])
        data.append(
            {"stage": stage.name, "size": size, "bytes_per_parameter": each, "bytes": held}
            | {"fits": held <= room, "least_size": least, "largest": largest}
        )
    header = ("state", "N", "per parameter", "per GPU", "fits", "", "largest model", "sent per step")
    weights = in_bytes(parameters * state.WEIGHT)
    lines = [
        f"{in_count(parameters)} parameters, mixed-precision Adam, GPUs of {in_bytes(room)}; activations excluded",
        "  per parameter: weight 2 B, gradient 2 B (bf16); master weight 4 B, m 4 B, v 4 B (fp32)",
        *table(header, rows, "lrrrllrr"),
        f"  W is the weights' {weights}. The largest model leaves no room for activations.",
        "  Plain data parallelism copies the state to every GPU: more of them give no more room.",
    ]
    return Answer(lines, {"memory": data})


def budget(run: budgets.Budget, rule: str, gpu: Gpu) -> Answer:
    """FLOPs, GPU hours and days of a training run; `rule` says how the FLOPs follow, or is empty."""
    lines = [f"Training on {run.gpus:,} GPU{'s' * (run.gpus > 1)} of {digits(gpu.peak / 1e12)} TFLOP/s (dense bf16)"]
    if run.flops is not None:
        lines.append(f"  FLOPs      {rule}{run.flops:.3g}")
    if run.mfu is not None:
        lines.append(f"  MFU        {percent(run.mfu)} of the peak")
    lines += [
        f"  GPU hours  {in_count(run.gpu_seconds / HOUR)} = {in_time(run.gpu_seconds)} of one GPU",
        f"  time       {in_time(run.seconds)}",
        f"  memory     {digits(gpu.hbm / 1e12)} TB/s: with fewer than {digits(gpu.peak / gpu.hbm)} FLOPs for each byte "
        "read, a GPU is memory-bound",
    ]
    said = []
    if rule:
        said.append("6 N D leaves out attention's products; of a mixture of experts N counts the active parameters.")
    if run.mfu is not None and run.mfu > 1:
        said.append("that is more than the peak: the FLOPs, the GPU hours and the peak are not of one run.")
    data = run._asdict() | {"gpu_hours": run.gpu_seconds / HOUR, "days": run.seconds / DAY}
    return Answer(lines + notes(said), data)


def batch(found: Sequence[budgets.Batch]) -> Answer:
    """Global batches, and what the linear rule and accumulation do to learning rate and time, relative to the first."""
    first = found[0]
    rows = []
    for x in found:
        product = f"{x.global_batch} = {x.local} x {x.gpus} x {x.accumulation}"
        ratios = x.global_batch / first.global_batch, x.accumulation / first.accumulation
        rows.append([str(x.gpus), product, str(x.accumulation), *(f"x {digits(ratio)}" for ratio in ratios)])
    header = ("N", "global = local x N x accumulation", "accumulation", "linear lr rule", "time per step")
    lines = ["Global batch", *table(header, rows, "rlrrr")]
    lines.append("  One all-reduce per step: all micro-batches but the last are under no_sync.")
    said = []
    if any(x.accumulation > 1 for x in found):
        said.append("another order of additions gives the same gradient up to rounding, not to the bit.")
    if len({x.global_batch for x in found}) > 1:
        said.append("another global batch is another optimization problem: gradient noise and learning rate change.")
    return Answer(lines + notes(said), {"batch": [x._asdict() for x in found]})
