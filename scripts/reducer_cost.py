"""What the Reducer costs beside its communication: mpirun -np 2 python scripts/reducer_cost.py

The trainer's GPT, twice, with the same batches: plain (forward, backward, optimizer), and in a DistributedDataParallel
whose exchange is `Nothing`, so that each rank keeps its own gradients. They take turns of a few steps each; a turn's
time is that of the slowest rank. Shown are medians with quartiles; a ratio is taken within a round of turns. Since it
is smaller than what disturbs a step, the Reducer's calls of a step are also timed alone, without a model between them.
"""

import argparse
import functools
import time

from mpicoll import runtime

runtime.limit_threads()  # before NumPy loads

import numpy as np  # noqa: E402
from mpi4py import MPI  # noqa: E402

from mpicoll import Communicator  # noqa: E402
from mpicoll.training import data, options, recipes  # noqa: E402
from mpicoll.training.ddp import DistributedDataParallel  # noqa: E402
from mpicoll.training.exchanges import Nothing  # noqa: E402
from mpicoll.training.loop import predict  # noqa: E402
from mpicoll.training.losses import cross_entropy  # noqa: E402
from mpicoll.training.optimizers import AdamW  # noqa: E402

world = MPI.COMM_WORLD
ADAMW = {"lr": 1e-3, "betas": (0.9, 0.99), "epsilon": 1e-8, "weight_decay": 0.01}


class Setting:
    """What all contenders train: `model()` makes a replica, `batch(i)` is this rank's i-th share of the samples."""

    def __init__(self, about):
        parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
        parser.add_argument("--preset", choices=recipes.GPTS, default="tiny", help="the GPT's sizes and global batch")
        parser.add_argument("--share", type=int, help="samples per rank; None: the preset's batch by the ranks")
        parser.add_argument("--rounds", type=int, default=40, help="in which each contender has a turn")
        parser.add_argument("--turn", type=int, default=4, help="steps of a turn")
        told = parser.parse_args()
        self.rounds, self.turn = told.rounds, told.turn
        self.recipe = options.parse(["--preset", told.preset], about)
        self.text = recipes.load(self.recipe, data.read())
        self.share = told.share or self.recipe.global_batch // world.size
        if world.rank == 0:
            print(f"{recipes.words(self.recipe)}; {world.size} ranks x {self.share} samples, float32", flush=True)

    def model(self):
        return recipes.build(self.recipe, self.text)

    def batch(self, i):
        rng = np.random.default_rng([i, world.rank])
        return self.text.train[rng.integers(len(self.text.train), size=self.share)]


def step(model, optimizer, batch):
    """The loss of one step of ours, averaged over this rank's predictions."""
    optimizer.zero_grad()
    logits, targets = predict(model, batch)
    losses, grad = cross_entropy(logits, targets, targets.size)
    model.backward(grad)
    optimizer.step()
    return losses.mean()


def in_turn(setting, contenders):
    """The seconds of a step, of the slowest rank: {name: (rounds,)}; the first round, of warming up, is left out.

    Args:
        contenders: {name: function of a batch}.
    """
    names, took = list(contenders), np.empty((setting.rounds + 1, len(contenders)))
    for i, row in enumerate(took):
        batches = [setting.batch(i * setting.turn + k) for k in range(setting.turn)]
        for k in range(len(names)):
            k = (k + i) % len(names)  # what disturbs the machine disturbs all alike
            world.Barrier()
            start = time.perf_counter()
            for batch in batches:
                contenders[names[k]](batch)
            row[k] = (time.perf_counter() - start) / setting.turn
    world.Allreduce(MPI.IN_PLACE, took, MPI.MAX)
    return dict(zip(names, took[1:].T, strict=True))


def quartiles(values, form):
    low, middle, high = (form(x) for x in np.percentile(values, [25, 50, 75]))
    return f"{middle} ({low} to {high})"


def report(took, ratios):
    """Rank 0 has printed milliseconds per step and the ratios, (name, name)."""
    if world.rank == 0:
        width = max(map(len, took))
        for name, seconds in took.items():
            print(f"{name:<{width}}  {quartiles(seconds * 1e3, '{:.2f}'.format)} ms per step")
        for a, b in ratios:
            print(f"{a} over {b}: {quartiles(took[a] / took[b], '{:.3f}'.format)}", flush=True)


def main():
    setting = Setting(__doc__)
    plain, reduced = setting.model(), DistributedDataParallel(setting.model(), Communicator(world), exchange=Nothing())
    contenders = {
        name: functools.partial(step, model, AdamW(model.parameters, **ADAMW))
        for name, model in (("plain", plain), ("reducer", reduced))
    }
    took = in_turn(setting, contenders)
    report(took, [("reducer", "plain")])

    def calls(_):
        for p in reversed(reduced.parameters):
            reduced.mark_ready(p)
        reduced.finish()

    alone = in_turn(setting, {"calls": calls})["calls"]
    if world.rank == 0:
        share = np.median(alone) / np.median(took["plain"])
        print(f"its calls alone: {quartiles(alone * 1e6, '{:.0f}'.format)} us per step, {share:.2%} of the plain one")


if __name__ == "__main__":
    main()
