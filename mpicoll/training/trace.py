"""A timeline as a file: a Chrome trace, which https://ui.perfetto.dev shows, or a picture; and what was predicted."""

import json
from pathlib import Path

import numpy as np

from .. import plot

COMPUTING, WAITING, PREDICTED, FIRST_BUCKET = 0, 1, 2, 3  # lanes


def predict(comm, step):
    """Every bucket of the step has `predicted`, (start, end) by the cost model: one after another, as they were ready.

    None, from a bucket on whose collective the model does not know.
    """
    free = -np.inf
    for bucket in step["buckets"]:
        bucket["predicted"], seconds = None, 0.0
        for call in bucket["calls"]:
            collective, nbytes, algorithm = call["what"]
            choice = comm.explain(collective, nbytes)
            call["algorithm"] = algorithm or choice.algorithm
            seconds += choice.predicted.get(call["algorithm"], np.nan)
        start = max(free, bucket["ready"])  # in this order: after what is not a number nothing is
        free = start + seconds
        if np.isfinite(free):
            bucket["predicted"] = start, free


def rounds(call):
    """[(name, start, end)] of a call, without gaps."""
    marks = [call["start"], *call["stamps"][:-1], call["done"]]
    names = [*(["the device computes"] if call["began"] else []), *(f"round {i}" for i in range(len(marks)))]
    return list(zip(names, marks, marks[1:], strict=False))


def trace(everyone):
    """Chrome's trace events of the steps of all ranks, see `Timeline.gather`: a process per rank, a thread per lane."""
    times = [span[1] for steps in everyone for step in steps for span in step["spans"]]
    origin, events = min(times, default=0.0), []
    for rank, steps in enumerate(everyone):
        lanes = {COMPUTING: "computing", WAITING: "waiting for communication", PREDICTED: "predicted communication"}

        def add(lane, name, start, end, rank=rank, **about):
            ts, duration = (start - origin) * 1e6, max(0.0, end - start) * 1e6
            about = {"args": about} if about else {}
            events.append({"ph": "X", "pid": rank, "tid": lane, "name": name, "ts": ts, "dur": duration, **about})

        for step in steps:
            for name, start, end in step["spans"]:
                add(COMPUTING, name, start, end, step=step["step"])
            for name, start, end in step["waits"]:
                add(WAITING, name, start, end, step=step["step"])
            for i, bucket in enumerate(step["buckets"]):
                lane = FIRST_BUCKET + i
                lanes[lane] = f"bucket {i}"
                if bucket["predicted"]:
                    add(PREDICTED, f"bucket {i}", *bucket["predicted"], nbytes=bucket["nbytes"])
                if bucket["calls"]:
                    add(lane, "ready", bucket["ready"], bucket["calls"][0]["start"], step=step["step"])
                for call in bucket["calls"]:
                    name = f"{call['what'][0]} {call['algorithm']}"
                    add(lane, name, call["start"], call["done"], nbytes=call["what"][1], step=step["step"])
                    for part in rounds(call):
                        add(lane, *part)
        for lane, name in lanes.items():
            meta = {"ph": "M", "pid": rank, "tid": lane}
            events.append({**meta, "name": "thread_name", "args": {"name": name}})
            events.append({**meta, "name": "thread_sort_index", "args": {"sort_index": lane}})
        events.append({"ph": "M", "pid": rank, "name": "process_name", "args": {"name": f"rank {rank}"}})
        events.append({"ph": "M", "pid": rank, "name": "process_sort_index", "args": {"sort_index": rank}})
    return {"displayTimeUnit": "ms", "traceEvents": events}


def save(everyone, path):
    """The file holds the steps of all ranks: a Chrome trace, or a picture of rank 0's last one, as its name says."""
    if path.endswith(plot.KINDS):
        from .timeline_picture import draw

        draw(everyone[0][-1], path)
    else:
        Path(path).write_text(json.dumps(trace(everyone)), encoding="utf-8")


def check(path):
    """Nothing if `path` can be written.

    Raises:
        ValueError: it cannot, or a picture needs matplotlib.
    """
    if path.endswith(plot.KINDS):
        plot.check("--timeline", path)
    else:
        try:
            with open(path, "w", encoding="utf-8"):
                pass
        except OSError as error:
            raise ValueError(f"--timeline {path}: {error.strerror}") from None
