"""One step of a timeline as a picture."""

from .. import plot
from .trace import rounds

GREEN, BLUE, LIGHT_BLUE, GREY, RED, ORANGE, LIGHT_ORANGE, PURPLE = (
    "#228833", "#4477aa", "#7799bb", "#bbbbbb", "#cc3311", "#ee7733", "#f3a070", "#aa4499",
)  # fmt: skip
SHOWN = 40  # buckets; of more the first and the last ones


def size(nbytes):
    return f"{nbytes / 2**20:.2g} MiB" if nbytes >= 1e5 else f"{nbytes / 2**10:.2g} KiB"


def draw(step, path):
    """The file shows a step, from `timeline.Timeline.gather`: computing, waiting, each bucket, what was predicted.

    Raises:
        ValueError: matplotlib is missing.
    """
    plot.load()
    from matplotlib.figure import Figure

    buckets = list(enumerate(step["buckets"]))
    if len(buckets) > SHOWN:
        buckets = [*buckets[: SHOWN // 2], *buckets[-SHOWN // 2 :]]
    origin = min(start for _, start, _ in step["spans"])
    end = max(end for _, _, end in (*step["spans"], *step["waits"]))
    rows = ["predicted", *(f"bucket {i}: {size(b['nbytes'])}" for i, b in reversed(buckets)), "waiting"]
    rows.append("computing")
    figure = Figure(figsize=(10, 1.5 + 0.26 * len(rows)), layout="constrained")
    axes, seen = figure.subplots(), set()

    def bar(row, spans, color, label, height=0.7, **style):
        boxes = [((start - origin) * 1e3, (stop - start) * 1e3) for start, stop in spans]
        if boxes:
            text = None if label in seen else label
            seen.add(label)
            axes.broken_barh(boxes, (row - height / 2, height), facecolors=color, label=text, **style)

    top = len(rows) - 1
    kinds = {"forward": GREEN, "optimizer": PURPLE, "drive communication": GREY}
    for name, color in kinds.items():
        bar(top, [(a, b) for what, a, b in step["spans"] if what == name], color, name)
    layers = [(a, b) for what, a, b in step["spans"] if what not in kinds]
    bar(top, layers, [BLUE, LIGHT_BLUE], "backward, layer by layer")
    bar(top - 1, [(a, b) for _, a, b in step["waits"] if b - a > 0], RED, "the step waits")
    for place, (_, bucket) in enumerate(buckets):
        row, calls = top - 2 - place, bucket["calls"]
        if calls:
            bar(row, [(bucket["ready"], calls[0]["start"])], GREY, "ready, not its turn yet", 0.2)
        parts = [(a, b) for call in calls for _, a, b in rounds(call)]
        bar(row, parts, [ORANGE, LIGHT_ORANGE], "exchange, round by round")
    predicted = [b["predicted"] for _, b in buckets if b["predicted"]]
    bar(0, predicted, "none", "predicted, bucket by bucket", edgecolor=ORANGE, lw=1)
    for _, a, b in step["waits"]:
        axes.axvspan((a - origin) * 1e3, (b - origin) * 1e3, color=RED, alpha=0.08, lw=0, zorder=0)
    last = max([end, *(b for _, b in predicted)])
    axes.set(xlim=(0, (last - origin) * 1e3), ylim=(-0.6, top + 0.6), xlabel="ms since the step began")
    axes.set_yticks(range(len(rows)), rows, fontsize=8)
    waited = sum(b - a for _, a, b in step["waits"])
    axes.set_title(
        f"step {step['step']} of rank 0: {(end - origin) * 1e3:.1f} ms, of which it waits {waited * 1e3:.1f} ms",
        fontsize=10,
    )
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    figure.legend(loc="outside lower center", ncols=4, fontsize=8, frameon=False)
    plot.save(figure, path)
