"""The timeline and the sweep as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..plot import load, save
from .step import Step
from .sweep import Point

BLUE, ORANGE, GREEN, GREY = "#4477aa", "#ee7733", "#228833", "#999999"
LIGHT_BLUE, LIGHT_ORANGE = "#7799bb", "#f3a070"


def _figure(width: float, height: float) -> Any:
    load()
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def timeline(result: Step, path: str) -> None:
    """FILE shows the GPU's lane and the network's, one box per bucket, and the bounds.

    Raises:
        ValueError: matplotlib is missing.
        OSError: the file cannot be written.
    """
    figure = _figure(10, 2.9)
    axes = figure.subplots()
    bounds = {name: seconds * 1e3 for name, seconds in result.bounds.items()}
    gpu, end = result.gpu * 1e3, bounds["timeline"]
    all_reduces = [(bucket.start, bucket.stop) for bucket in result.buckets]
    for y, spans, colors, label in (
        (1, [(0, result.forward)], [GREEN], "forward"),
        (1, result.layers, [BLUE, LIGHT_BLUE], "backward, layer by layer"),
        (0, all_reduces, [ORANGE, LIGHT_ORANGE], "all-reduce, bucket by bucket"),
    ):
        boxes = [(start * 1e3, (stop - start) * 1e3) for start, stop in spans]
        axes.broken_barh(boxes, (y - 0.3, 0.6), facecolors=colors, label=label)
    if result.exposed > 0:
        axes.axvspan(gpu, end, color=GREY, alpha=0.25, lw=0, zorder=0, label=f"exposed: {result.exposed * 1e3:.1f} ms")
    for name, style in ("max", ":"), ("sum", "--"):
        axes.axvline(bounds[name], color="black", ls=style, lw=1, label=f"{name}: {bounds[name]:.1f} ms")
    axes.set(xlim=(0, bounds["sum"] * 1.02), ylim=(-0.5, 1.5), yticks=[0, 1], xlabel="ms since the step began")
    axes.set_yticklabels(["network", "GPU"])
    fabric = result.fabric
    name = f"{fabric.size} GPU{'s' * (fabric.size > 1)}, {fabric.algorithm} on {fabric.name}"
    axes.set_title(f"{name}: {end:.1f} ms, efficiency {result.efficiency:.1%}, {result.verdict}", fontsize=10)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    figure.legend(loc="outside lower center", ncols=6, fontsize=8, frameon=False)
    save(figure, path)


def scaling(points: Sequence[Point], path: str) -> None:
    """FILE shows speed-up and efficiency over the number of GPUs.

    Raises:
        ValueError: matplotlib is missing.
        OSError: the file cannot be written.
    """
    figure = _figure(9, 3.6)
    left, right = figure.subplots(1, 2)
    sizes = [point.size for point in points]
    compute = points[0].weak.gpu
    ideal = [size / sizes[0] for size in sizes]
    weak = [n * point.weak.efficiency for n, point in zip(ideal, points, strict=True)]
    strong = [compute / point.strong.bounds["timeline"] for point in points]
    most = [compute / point.strong.bounds["max"] for point in points]
    left.plot(sizes, ideal, color=GREY, lw=1, label="ideal")
    for values, color, style, name in (
        (weak, GREEN, "o-", "weak: batch per GPU kept"),
        (strong, ORANGE, "o-", "strong: global batch kept"),
        (most, ORANGE, ":", "strong, if all overlapped"),
    ):
        left.plot(sizes, values, style, color=color, ms=4, label=name)
        right.plot(sizes, [100 * x / n for x, n in zip(values, ideal, strict=True)], style, color=color, ms=4)
    left.set(xscale="log", yscale="log", xlabel="GPUs", title=f"speed-up over N = {sizes[0]} without communication")
    right.set(xscale="log", xlabel="GPUs", ylim=(0, 105), title="efficiency in %")
    for axes in left, right:
        axes.set_xticks(sizes, [str(size) for size in sizes])
        axes.minorticks_off()
        axes.title.set_size(10)
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    left.set_yticks(ideal, [f"{n:g}" for n in ideal])
    left.legend(fontsize=8, frameon=False)
    save(figure, path)
