"""Variants of the trainer, and their steps timed in turn.

A variant is the trainer's own command line, so whatever is compared here can be trained with as well. In each of the
repetitions every variant has its turn, in an order that rotates: what disturbs the machine disturbs all alike. A turn
is some steps of which the first, with cold caches, does not count; the first repetition does not count either.

Times are means over the ranks that train; shown are medians over the steps, with quartiles. What is saved is computed
within a repetition, from its medians.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI
from tqdm import tqdm

from .. import progress
from ..communicator import Communicator
from ..training import loop, options, setup
from .outcome import TIMES

# 9 MiB of gradients, so that communication shows, and about as many buckets: with a cap of 25 there is one.
GPT = "--width 256 --layers 3 --heads 4 --lr 0.001 --clip 0 --bucket-cap-mb 1"
SMALL = "--width 32 --layers 1 --heads 2 --context 16 --lr 0.001 --clip 0"  # to see that everything runs

# Training is not annotated.
_communicator: Any = Communicator
_parse: Any = options.parse
_set_up: Any = setup.set_up
_train: Any = loop.train

Spread = dict[str, float]


class Setting(NamedTuple):
    """Where the experiments run.

    Attributes:
        comm: the Communicator of all of `world`.
        place, device: from `devices.agree`.
        stack: closes what was opened.
        quick: everything is small, and next to nothing is repeated.
    """

    world: MPI.Intracomm
    comm: Any
    place: Callable[[Any], Any]
    device: str
    stack: contextlib.ExitStack
    quick: bool

    def gpt(self, batch: int, *words: object, sizes: str = GPT, ranks: int = 0) -> list[str]:
        """The arguments of a GPT that learns from `batch` samples per rank and step, and some more; 0 ranks are all."""
        sizes = SMALL if self.quick else sizes
        return [*sizes.split(), "--global-batch", str(batch * (ranks or self.comm.size)), *map(str, words)]

    def bar(self, total: int, unit: str) -> Any:
        """A progress bar, on rank 0."""
        return tqdm(total=total, unit=unit, mininterval=0.5, leave=False, disable=self.world.rank != 0 or None)


class Variant:
    """A way to train, set up, and the times of its steps. Collective over `comm`.

    Args:
        words: the trainer's arguments.
        comm: of the ranks that train; None on one that does not.

    Attributes:
        words, args, parts: the arguments, these read, and what `set_up` made of them.
        turns: the records of the steps that count, a list for each turn.
    """

    def __init__(self, setting: Setting, name: str, words: Sequence[str], comm: Any) -> None:
        self.name, self.words, self.comm = name, words, comm
        self.turns: list[list[dict[str, Any]]] = []
        if comm:
            self.args = _parse(words, None)
            try:
                self.parts = _set_up(comm, self.args, setting.stack, setting.place, setting.device)
            except ValueError as error:
                if comm.size == setting.world.size:
                    raise
                raise RuntimeError(f"{error} (with mpicoll.train {' '.join(words)})") from error  # others wait for us

    @property
    def model(self) -> str:
        """What is trained, in words."""
        count = sum(p.data.size for p in self.parts.model.parameters)
        mib = sum(bucket.flat.nbytes for bucket in self.parts.model.buckets) / 2**20
        sizes = self.parts.words.partition(": ")[2]
        return f"{self.args.model.upper()}: {sizes}; {count:,} parameters, {mib:.1f} MiB of gradients"

    def train(self, steps: int, schedule: Callable[[int], float] | None = None) -> list[dict[str, Any]]:
        """The records of so many steps, at the peak rate where there is no schedule."""
        p = self.parts
        schedule = schedule or (lambda step: p.peak)
        drive: Any = progress.thread if p.thread else contextlib.nullcontext
        with drive():
            return list(
                _train(
                    self.comm, p.model, p.optimizer, p.data.train, p.sampler, steps, schedule, self.args.clip or None
                )
            )

    def times(self, *names: str) -> Any:
        """(names, turns, steps) milliseconds, means over the ranks; `names` are TIMES or waits. Collective."""
        mine = [
            [[record.get(name, record["waits_ms"].get(name)) for record in turn] for turn in self.turns]
            for name in names or TIMES
        ]
        return self.comm.allreduce(np.array(mine), op="avg")


def variants(setting: Setting, ways: dict[str, list[str]]) -> list[Variant]:
    """A variant of all ranks for each way to train, by name."""
    return [Variant(setting, name, words, setting.comm) for name, words in ways.items()]


def some(setting: Setting, ranks: int) -> Any:
    """A Communicator of the first `ranks` ranks; None on the others. Collective."""
    takes_part = setting.world.rank < ranks
    part = setting.world.Split(0 if takes_part else MPI.UNDEFINED)
    if not takes_part:
        return None
    comm = setting.stack.enter_context(_communicator(part))
    part.Free()
    return comm


def together(world: MPI.Intracomm) -> None:
    """All ranks are here; those that wait leave the cores to the others."""
    request = world.Ibarrier()
    while not request.Test():
        time.sleep(1e-3)


def measure(setting: Setting, those: Sequence[Variant], repetitions: int = 5, steps: int = 3) -> None:
    """Every variant has trained for `repetitions` turns of 1 + `steps` steps, in turn with the others. Collective."""
    if setting.quick:
        repetitions = steps = 1
    with setting.bar((1 + repetitions) * len(those), "turn") as bar:
        for repetition in range(-1, repetitions):
            for place in range(len(those)):
                variant = those[(repetition + place) % len(those)]
                together(setting.world)
                if variant.comm:
                    records = variant.train(1 + steps)
                    if repetition >= 0:
                        variant.turns.append(records[1:])
                bar.update()
    together(setting.world)


def spread(values: Any) -> Spread:
    """Median and quartiles; where numbers are infinite, nothing is between two of them."""
    method: Any = "linear" if np.isfinite(values).all() else "nearest"
    low, middle, high = np.percentile(values, [25, 50, 75], method=method)
    return {"median": float(middle), "q1": float(low), "q3": float(high)}


def clocks(times: Any) -> dict[str, Spread]:
    """What `Variant.times` gives, for a row of a table."""
    return {key: spread(clock) for key, clock in zip(TIMES, times, strict=True)}


def ratio(those: Any, base: Any) -> Spread:
    """The spread over repetitions of the ratio of medians; both are (turns, steps) times."""
    return spread(np.median(those, axis=1) / np.median(base, axis=1))


def saved(those: Any, base: Any) -> Spread:
    """The share of `base` that is saved, as `ratio`."""
    of = ratio(those, base)
    return {"median": 1 - of["median"], "q1": 1 - of["q3"], "q3": 1 - of["q1"]}
