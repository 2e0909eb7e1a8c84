"""The table and the picture of scaling.sbatch: python scripts/scaling.py FOLDER

FOLDER has MODE-NODES.jsonl, metrics of mpicoll.train for weak and strong scaling; the picture is scaling.svg there. The
efficiency is the samples per second over those of the fewest nodes, over how many times as many the nodes are: 1 at
best, whether the batch grew with them (weak) or not (strong). Times are medians over all steps but the first tenth.
"""

import json
import re
import sys
from pathlib import Path
from statistics import median
from typing import NamedTuple

from mpicoll import plot


class Run(NamedTuple):
    """What one training took; times in ms per step."""

    mode: str
    nodes: int
    ranks: int
    batch: int
    step: float
    exposed: float

    @property
    def rate(self):
        """Samples per second."""
        return 1e3 * self.batch / self.step


def read(folder):
    """The Runs of a folder, weak ones first, by rising number of nodes.

    Raises:
        ValueError: there are none, or one did not come to its end.
    """
    runs = []
    for path in Path(folder).glob("*.jsonl"):
        if name := re.fullmatch(r"(weak|strong)-(\d+)\.jsonl", path.name):
            *steps, last = map(json.loads, path.read_text().splitlines() or ["{}"])
            if last.get("event") != "summary":
                raise ValueError(f"{path} has no summary: that training did not come to its end")
            times = [median(step[key] for step in steps[len(steps) // 10 :]) for key in ("step_ms", "exposed_comm_ms")]
            runs.append(Run(name[1], int(name[2]), last["world_size"], last["global_batch"], *times))
    if not runs:
        raise ValueError(f"{folder} has no weak-NODES.jsonl or strong-NODES.jsonl")
    return sorted(runs, key=lambda run: (run.mode == "strong", run.nodes))


def efficiency(run, runs):
    """That of a run of `runs`, against the one with the fewest nodes in its mode."""
    first = min((other for other in runs if other.mode == run.mode), key=lambda other: other.nodes)
    return run.rate / first.rate / (run.nodes / first.nodes)


def table(runs):
    """The lines for people."""
    head = f"{'':8}{'nodes':>6}{'ranks':>6}{'batch':>7}{'step ms':>9}{'waiting':>9}{'samples/s':>11}{'efficiency':>12}"
    return [head] + [
        f"{run.mode:8}{run.nodes:6}{run.ranks:6}{run.batch:7}{run.step:9.1f}{run.exposed / run.step:9.0%}"
        f"{run.rate:11.0f}{efficiency(run, runs):12.0%}"
        for run in runs
    ]


def draw(runs, path):
    """The picture: samples per second over nodes, and what they would be at an efficiency of 1."""
    plot.load()
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.add_subplot(xlabel="nodes", ylabel="samples per second")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    for mode, colour in zip(("weak", "strong"), plot.COLOURS, strict=False):
        if own := [run for run in runs if run.mode == mode]:
            nodes = [run.nodes for run in own]
            axes.plot(nodes, [run.rate for run in own], "o-", color=colour, label=mode)
            ideal = [own[0].rate * count / nodes[0] for count in nodes]
            axes.plot(nodes, ideal, ":", color=colour, label=f"{mode}, ideal")
    axes.set_xticks(sorted({run.nodes for run in runs}))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.legend()
    plot.save(figure, path)


def main(folder):
    """The exit status."""
    try:
        runs = read(folder)
    except ValueError as error:
        print(f"scaling: error: {error}", file=sys.stderr)
        return 2
    print("\n".join(table(runs)))
    draw(runs, Path(folder) / "scaling.svg")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]) if len(sys.argv) == 2 else f"usage: {__doc__}")
