"""All checks, one after the other, each for itself and for a limited time; a table of them at the end.

The order is that of importance: what does not fit into the time is left out. Each step is a command; what is wrong in
one does not keep the others from being tried. Exit status 0 only if all were tried and right.
"""

import argparse
import functools
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
ENOUGH = 10  # seconds; no step is begun when less is left


class Step(NamedTuple):
    """A command, and how long it may take.

    Attributes:
        aware: it needs an MPI that takes device memory.
        native: it asks the MPI for something that is not ours to give: where it fails, that is no failure.
    """

    name: str
    command: list[str]
    limit: float
    aware: bool = False
    native: bool = False


@functools.cache
def mpirun(size):
    """The launcher's part of a command."""
    version = subprocess.run(["mpirun", "--version"], capture_output=True, text=True, check=False).stdout
    flags = []
    if "Open MPI" in version or "OpenRTE" in version:
        flags = ["--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"]
    return ["mpirun", *flags, "-np", str(size)]


class State:
    """What the steps have found that later ones depend on.

    Attributes:
        not_aware: why messages cannot be sent from device memory; "" if they can.
        native: whether the MPI's own all-reduce takes device memory.
    """

    not_aware, native = "", False


def steps(device, file, short, state):
    """The steps, the most important first. With `short` they show only that they can be taken."""
    common = ["--device", device, "--json", str(file)]
    few = ["--dtypes", "float32,bfloat16,float8_e5m2"]

    def check(size, part, way, seconds, *arguments, **more):
        options = [
            *common,
            "--way",
            way,
            "--seconds",
            str(1 if short else seconds),
            *(few if short else ()),
            *arguments,
        ]
        command = [*mpirun(size), sys.executable, str(HERE / "check.py"), part, *options]
        return Step(f"{part} {way} {size}", command, 2 * seconds + 30, aware=way == "aware", **more)

    def bandwidth(size, seconds, *sizes):
        arguments = ["--sizes", "8,65536"] if short else [*sizes]
        arguments += ["--native"] if state.native else []
        return check(size, "bandwidth", "staged" if state.not_aware else "aware", seconds, *arguments)

    yield check(1, "machine", "staged", 0)
    yield Step("probe", [sys.executable, "-m", "mpicoll.probe", "--fresh"], 90)
    yield check(8, "kernels", "staged", 30)
    yield check(2, "exact", "aware", 20)
    yield check(2, "early", "aware", 15)
    yield check(2, "native", "aware", 0, native=True)
    yield bandwidth(2, 40)
    yield check(2, "exact", "staged", 15)
    yield check(2, "early", "staged", 10)
    yield Step("training", [sys.executable, str(HERE / "training.py"), *common, *(["--small"] if short else ())], 120)
    yield check(2, "bits", "aware", 10)
    yield check(2, "upkeep", "aware", 10)
    yield check(2, "upkeep", "staged", 10)
    yield check(4, "exact", "aware", 12)
    yield bandwidth(4, 10, "--sizes", str(64 << 20))
    yield bandwidth(8, 12, "--sizes", str(64 << 20))
    yield check(8, "exact", "aware", 10, *few)
    yield check(4, "exact", "staged", 10)
    yield check(8, "exact", "staged", 10, *few)
    if device == "gpu":
        yield check(2, "lent", "aware", 15)


def perform(step, seconds, log):
    """(exit status, seconds it took); what it prints goes to the log, and its end to stdout."""
    start = time.monotonic()
    with open(log, "a+", encoding="utf-8") as output:
        print(f"\n== {step.name}: {' '.join(step.command)}", file=output, flush=True)
        begin = output.tell()
        command = ["timeout", "-k", "5", f"{seconds:.1f}", *step.command]
        status = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, check=False).returncode
        output.seek(begin)
        text = output.read()
    print(text[-2500:] if status else text[-6000:], end="", flush=True)
    return status, time.monotonic() - start


def events(file, begin):
    """What the steps have said since the file was `begin` bytes long."""
    with open(file, "rb") as lines:
        lines.seek(begin)
        return [json.loads(line) for line in lines]


def tell(file, *events):
    """The events are lines of the file, where there is one, and what is to be read is printed."""
    for event in events:
        if "text" in event:
            print(event["text"], flush=True)
        if file:
            with open(file, "a", encoding="utf-8") as lines:
                lines.write(json.dumps(event) + "\n")


def run(step, left, state, file, log):
    """The row of the table."""

    def row(verdict, why, seconds=0.0):
        return {"name": step.name, "verdict": verdict, "why": why, "seconds": seconds}

    if left < ENOUGH:
        return row("skipped", "time is up")
    if step.aware and state.not_aware:
        return row("skipped", state.not_aware)
    print(f"\n== {step.name}", flush=True)
    begin, limit = file.stat().st_size, min(step.limit, left)
    status, seconds = perform(step, limit, log)
    texts = {event["event"]: event["text"] for event in events(file, begin) if "text" in event}  # the last of each
    if status == 0:
        skipped = texts.get("skipped")
        return row("skipped" if skipped else "ok", skipped or texts.get("note", "").strip(), seconds)
    ending = f"not done after {limit:.3g} s" if seconds >= limit else f"ended with status {status}"
    return row("cannot" if step.native else "FAILED", ending, seconds)


def table(rows):
    width = max(len(row["name"]) for row in rows)
    lines = [f"{r['name']:<{width}}  {r['verdict']:<7}  {r['seconds']:6.1f} s  {r['why'][:110]}" for r in rows]
    verdicts = [row["verdict"] for row in rows]
    counts = [f"{verdicts.count(verdict)} {verdict}" for verdict in dict.fromkeys(verdicts)]
    return "\n".join([*lines, ", ".join(counts)])


def why_not_aware(device):
    """Why messages cannot be sent from device memory, by what the probe has found; "" if they can."""
    if device != "gpu":
        return ""
    code = "from mpicoll import probe; verdict = probe.cuda_aware(); print('' if verdict.aware else verdict)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    return done.stdout.strip() or (done.returncode and "the probe failed")


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("gpu", "stand-in"), default="gpu")
    parser.add_argument("--seconds", type=float, default=480, help="for all of it")
    parser.add_argument("--json", type=Path, default=Path("gpu_check.jsonl"), help="file for all figures")
    parser.add_argument("--short", action="store_true", help="a trial of the steps themselves")
    parser.add_argument("--only", help="only the steps whose names have this in them")
    args = parser.parse_args(argv)
    end = time.monotonic() + args.seconds
    args.json.write_text("")
    log = args.json.with_suffix(".log")
    log.write_text("")
    os.environ.pop("MPICOLL_CUDA", None)  # each step says what it wants
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    rows, state = [], State()
    for step in steps(args.device, args.json, args.short, state):
        if args.only and args.only not in step.name:
            continue
        rows.append(run(step, end - time.monotonic(), state, args.json, log))
        tell(args.json, {"event": "step", **rows[-1]})
        state.native |= step.native and rows[-1]["verdict"] == "ok"
        if step.name == "probe":
            state.not_aware = why_not_aware(args.device)
    print(f"\n{table(rows)}\nfigures: {args.json}; all that was printed: {log}")
    return int(any(row["verdict"] in ("FAILED", "skipped") for row in rows))


if __name__ == "__main__":
    sys.exit(main())
