"""Training on GPUs is training: python tests/gpu/training.py --device gpu

The same global batches on one rank, on four and on one CPU: the losses are the same but for rounding, the replicas
bit-identical, the bytes those of the formula. With the stand-in all of it runs on CPUs.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from steps import mpirun, tell

# Of a loss, relative. Ranks and devices add in another order, and each step starts where the one before has ended; on
# CPUs four ranks are 2e-6 from one after these steps.
TOLERANCE, BETWEEN_DEVICES = 1e-4, 1e-3


def train(folder, size, *arguments):
    """(losses, summary) of a run."""
    metrics = Path(folder) / "metrics.jsonl"
    command = [*mpirun(size), sys.executable, "-m", "mpicoll.train", "--metrics", str(metrics), *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)} ended with status {done.returncode}:\n{done.stdout[-3000:]}")
    *steps, summary = map(json.loads, metrics.read_text().splitlines())
    return [step["loss"] for step in steps], summary


def runs(device, small):
    """{name: (ranks, tolerance, arguments)}; the first is what the others are compared with."""
    few = ["--hidden", "32", "--global-batch", "84"] if small else []
    common = ["--model", "mlp", "--steps", "10" if small else "40", *few]
    there = ["--device", "gpu" if device == "gpu" else "cpu", *common]
    found = {"1 rank": (1, TOLERANCE, there), "4 ranks": (4, TOLERANCE, there)}
    if not small:
        found["4 ranks, progress thread"] = (4, TOLERANCE, [*there, "--progress-thread"])
        found["1 rank on the CPU"] = (1, BETWEEN_DEVICES, ["--device", "cpu", *common])
    return found


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("gpu", "stand-in"), default="gpu")
    parser.add_argument("--small", action="store_true", help="two short runs of a small model")
    parser.add_argument("--json", help="file to which lines are appended")
    args = parser.parse_args(argv)
    first, wrong = None, []
    for name, (size, tolerance, arguments) in runs(args.device, args.small).items():
        with tempfile.TemporaryDirectory() as folder:
            losses, summary = train(folder, size, *arguments)
        first = first or losses
        worst = max(abs(a - b) / abs(b) for a, b in zip(losses, first, strict=True))
        said = (
            f"{name}: loss {losses[0]:.4f} to {losses[-1]:.4f}, at most {worst:.1e} from the first run's; "
            f"{summary['step_ms']:.2f} ms a step, {summary['exposed_comm_ms']:.2f} of them waiting; {summary['device']}"
        )
        tell(args.json, {"event": "training", "run": name, "worst": worst, **summary}, {"event": "note", "text": said})
        if not (worst <= tolerance and losses[-1] < losses[0] and summary["replicas_identical"]):
            wrong.append(f"{name}: not training as the first run's, which may differ by {tolerance}")
    if not wrong:
        tell(args.json, {"event": "note", "text": f"the losses of all {len(runs(args.device, args.small))} runs agree"})
    return "; ".join(wrong) or 0


if __name__ == "__main__":
    sys.exit(main())
