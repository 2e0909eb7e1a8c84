"""How much of a step's communication is hidden: net.sh 2 scripts/lab/mpirun.sh python scripts/lab/overlap.py

A GPT of about 10 MB of gradients, with as many samples per rank that backward takes about as long as its all-reduces.
Each way to drive them is timed for a few steps in turn, again and again; a step's time is that of the slowest rank,
waiting is what its `finish` takes; shown are medians.

    exposed   the part of the communication for which the step still waits
    saved     the part of the communication by which the step is shorter than without overlap
"""

import argparse
import contextlib
import time

import numpy as np
from mpi4py import MPI

import mpicoll
from mpicoll import progress
from mpicoll.training import driving
from mpicoll.training.ddp import DistributedDataParallel
from mpicoll.training.exchanges import AllReduce, Nothing
from mpicoll.training.gpt import GPT
from mpicoll.training.losses import cross_entropy

CONTEXT, HEADS, CLASSES = 64, 4, 96
world = MPI.COMM_WORLD


class Steps:
    """Forward and backward of one GPT on random characters."""

    def __init__(self, comm, options):
        net = GPT(CLASSES, CONTEXT, options.width, options.layers, HEADS)
        cap = driving.bucket_cap_mb(len(set(comm.nodes)), sum(p.data.nbytes for p in net.parameters))
        self.model = DistributedDataParallel(net, comm, options.bucket_cap_mb or cap)
        self.rng = np.random.default_rng(comm.rank)
        self.batch = options.batch

    def step(self):
        """(seconds of the step, of backward, of waiting), after one forward and backward."""
        model = self.model
        x = self.rng.integers(CLASSES, size=(self.batch, CONTEXT + 1))
        model.comm.barrier()
        start = time.perf_counter()
        model.zero_grad()
        logits = model.forward(x[:, :-1])
        _, grad = cross_entropy(logits, x[:, 1:])
        begun = time.perf_counter()
        model.backward(grad)
        end = time.perf_counter()
        return end - start, end - begun - model.exposed_s, model.exposed_s

    def times(self, mode, steps):
        """The medians of some steps of the slowest rank, driven as `mode` says; the first one warms up."""
        model = self.model
        model.exchange = Nothing() if mode == "alone" else AllReduce()
        model.overlap = mode not in ("alone", "no overlap")
        with progress.thread() if mode == "thread" else contextlib.nullcontext():
            found = [self.step() for _ in range(steps + 1)][1:]
        return np.median(model.comm.allreduce(np.array(found), op="max"), axis=0)

    def balance(self):
        """The batch is one for which backward takes as long as the communication; backward grows with it."""
        for _ in range(2):
            backward, communication = self.times("alone", 3)[1], self.times("no overlap", 3)[2]
            self.batch = max(1, round(self.batch * communication / backward))


MODES = {
    "alone": "without communication",
    "no overlap": "after backward",
    "hooks": "driven between layers",
    "thread": "driven by a thread, too",
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--width", type=int, default=224, help="of the GPT (default: 224)")
    add("--layers", type=int, default=4, help="of the GPT (default: 4)")
    add("--bucket-cap-mb", type=float, help="MiB (default: the trainer's)")
    add("--batch", type=int, default=0, help="samples per rank (default: backward as long as the communication)")
    add("--steps", type=int, default=5, help="of each way in a turn (default: 5)")
    add("--turns", type=int, default=7, help="(default: 7)")
    options = parser.parse_args()
    balanced, options.batch = options.batch > 0, options.batch or 8
    with mpicoll.Communicator(world) as comm:
        steps = Steps(comm, options)
        if not balanced:
            steps.balance()
        found = {mode: [] for mode in MODES}
        for _ in range(options.turns):
            for mode in MODES:
                found[mode].append(steps.times(mode, options.steps))
        if comm.rank == 0:
            show(comm, steps, found)


def show(comm, steps, found):
    """The table, from (seconds of the step, of backward, of waiting) of every turn by mode."""
    ms = {mode: np.median(times, axis=0) * 1e3 for mode, times in found.items()}
    library = MPI.Get_library_version().splitlines()[0].strip("\0").split(",")[0]
    buckets = steps.model.buckets
    nbytes, communication = sum(b.flat.nbytes for b in buckets), ms["no overlap"][2]
    print(f"{library}: {len(set(comm.nodes))} hosts, {comm.size} ranks, {steps.batch} samples each")
    print(f"{nbytes / 1e6:.1f} MB of gradients in {len(buckets)} buckets: {communication:.1f} ms of communication")
    print(f"backward alone {ms['alone'][1]:.1f} ms\n")
    print(f"{'all-reduces are':26}{'step ms':>9}{'waiting ms':>12}{'exposed':>9}{'saved':>8}")
    for mode, words in MODES.items():
        step, _, waiting = ms[mode]
        line = f"{words:26}{step:9.1f}"
        if mode != "alone":
            saved = (ms["no overlap"][0] - step) / communication
            line += f"{waiting:12.1f}{waiting / communication:9.0%}{saved:8.0%}"
        print(line, flush=True)


if __name__ == "__main__":
    main()
