"""Training that goes on without the ranks that die: nothing is lost, since every replica has all weights.

    rank 0   step 41 ── optimizer ── step 42 ── error ┐ the steps      ┌ step 42, as rank 0 of 3
    rank 1   step 41 ── error ────────────────────────┤ of the one     ├ step 42, as rank 1 of 3
    rank 2   step 41 ── dies                          │ that has made  │
    rank 3   step 41 ── optimizer ── step 42 ── error ┘ the most: 41   └ step 42, as rank 2 of 3

Whoever has made a step had the gradients of all ranks for it. So nobody goes back: who is behind gets parameters and
optimizer state of one who is not. What a step costs stays the same. A step that nobody has made is made again by those
that are left, who share the same global batch.
"""

import functools
import time

import numpy as np
from mpi4py import MPI

from .. import survival
from . import resume
from .setup import share_out


class Elastic:
    """A run that survives.

    Args:
        comm: of all ranks that were started.
        args, parts: from `options.parse` and `setup.set_up`. Where ranks die, parts are those of the ranks left.
        saving: the run's, or None.
        records: of the steps reported so far, on this rank.
        stack: in which communicators and files are closed.
    """

    def __init__(self, comm, args, parts, saving, records, stack):
        self.comm, self.args, self.parts, self.saving = comm, args, parts, saving
        self.records, self.stack = records, stack
        self.made, self.made_at, self.ranks = parts.first, time.perf_counter(), list(range(comm.size))
        self._optimize, parts.optimizer.step = parts.optimizer.step, self._step

    def _step(self):
        self._optimize()
        self.made, self.made_at = self.made + 1, time.perf_counter()

    def run(self, attempt):
        """What attempt(comm, made) returns, called again with those that are left, and the steps made, if ranks die."""
        comms = [self.comm, *([self.saving.comm] if self.saving else [])]
        result, left = survival.survive(comms, functools.partial(self._work, attempt))
        for comm in left:
            if comm not in comms:
                self.stack.enter_context(comm)
        return result

    def _work(self, attempt, comms):
        if comms[0] is not self.comm:
            self._renew(*comms)
        return attempt(self.comm, self.made)

    def _renew(self, comm, of_saving=None):
        """All that depended on the ranks is of those that are left, and their replicas are the same. Collective."""
        parts, records = self.parts, self.records
        parts.expected_bytes += (len(records) - parts.expected_of) * parts.model.formula_bytes()
        parts.expected_of = len(records)
        told = comm.allgather(np.array([MPI.COMM_WORLD.rank, self.made])).reshape(-1, 2)
        catch_up(comm, told[:, 1], parts)
        self.made = int(told[:, 1].max())
        parts.sampler, parts.model = share_out(comm, self.args, parts.data, parts.whole, self.made)
        if self.saving:
            self.saving.renew(of_saving, self.made)
        ranks = told[:, 0].tolist()
        reported = records[-1]["step"] if records else parts.first
        text = self._words([rank for rank in self.ranks if rank not in ranks], len(ranks), reported)
        parts.lost.append(text)
        self.comm, self.ranks = comm, ranks
        if comm.rank == 0:
            print(text, flush=True)
            self._go_on_writing(reported)

    def _words(self, lost, left, reported):
        numbers = f"rank{'s' * (len(lost) > 1)} {', '.join(map(str, lost))}"
        more = f"; of steps {reported + 1} to {self.made} nothing is reported" if reported < self.made else ""
        gap = time.perf_counter() - self.made_at
        return f"lost {numbers} after step {self.made}: {left} go on after {gap:.2f} s{more}"

    def _go_on_writing(self, reported):
        """The metrics file is rank 0's, also where that was another one until now."""
        if not self.args.metrics or self.parts.metrics:
            return
        try:
            file = open(self.args.metrics, "a+", encoding="utf-8", buffering=1)  # noqa: SIM115
            self.parts.metrics = self.stack.enter_context(file)
            resume.cut(file, reported)
        except OSError as error:
            print(f"metrics file {self.args.metrics}: {error.strerror}; nothing more is written there", flush=True)


def catch_up(comm, made, parts):
    """The parameters and the optimizer's state are those of a rank that has made the most steps. Collective.

    Nothing has changed on a rank until it has all of them: that one may die, too.

    Args:
        made: steps, of each rank.
    """
    if made.min() == made.max():
        return
    root, own = int(made.argmax()), resume.arrays(parts.model, parts.optimizer)
    new = {name: own[name] if comm.rank == root else np.empty_like(own[name]) for name in sorted(own)}
    for value in new.values():
        comm.broadcast(value, root=root)
    if made[comm.rank] < made[root]:
        resume.put(own, new, parts.optimizer)
