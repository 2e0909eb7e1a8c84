"""When a run is saved: every so many steps, at its end, and when a signal to any rank asks for it.

    rank 2   step 41 ────── SIGUSR1 ── step 42 ───────────────── step 43 ── save, end
    all      max of the ranks' signals ↑ starts    ends ↑ the same on all ranks

The ranks agree on signals by an all-reduce of one number that is under way during each step: its cost is a message's,
not a wait's.
"""

import signal

import numpy as np

from . import checkpoint, resume

SIGNALS = signal.SIGUSR1, signal.SIGTERM


class NotSaved(Exception):
    """A checkpoint could not be written, or its weights are not finite; raised on every rank."""


class Saving:
    """The checkpoints of a run; its `after_step` is the loop's hook.

    A context: inside, SIGUSR1 and SIGTERM to any rank have the run saved, and ended, after the step in which they come
    or the next one.

    Args:
        comm: of its own, so that its bytes are not counted as the gradients'.
        args: completed, with `checkpoint`.
        parts: from `setup.set_up`.

    Attributes:
        ended: why the run ended before its last step, for people; empty if it did not.
        step: the last one.
    """

    def __init__(self, comm, args, parts):
        self.comm, self.parts, self.folder, self.every = comm, parts, args.checkpoint, args.checkpoint_every
        self.stop_at, self.ended, self.step = args.stop_at, "", 0
        self._about = resume.about(args, parts)
        self._asked, self._handle, self._before = 0, None, {}
        self._told = False  # that a signal came to some rank

    def __enter__(self):
        self._before = {number: signal.signal(number, self._ask) for number in SIGNALS}
        return self

    def __exit__(self, kind, error, trace):
        # If a signal ended the run another one may be on its way, as a launcher and a batch script both pass it on. It
        # is ignored to the end of the process; of other handlers Python then makes the default again, which kills.
        ended = self._asked or self._told
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_IGN if ended else handler)
        if kind is None and self._handle:  # all ranks end at the same step
            self._handle.wait()

    def _ask(self, number, frame):
        self._asked = number

    def after_step(self, step):
        """Whether training ends here, with a checkpoint; it is saved when it is time.

        All ranks call it after every step, counted from 1, in which their replicas have moved.

        Raises:
            NotSaved: on every rank; the checkpoint before is what there is.
        """
        self.step = step
        asked = int(self._handle.wait()[0]) if self._handle else 0
        self._handle = None
        if asked:
            self._told = True
            number, rank = divmod(asked, self.comm.size)
            self.ended = f"{signal.Signals(number).name} to rank {rank}"
        elif step == self.stop_at:
            self.ended = "--stop-at"
        last = bool(self.ended) or step == self.parts.steps
        if last or step % self.every == 0:
            self.save(step)
        if not last:
            self._tell()
        return last

    def _tell(self):
        told = self._asked * self.comm.size + self.comm.rank if self._asked else 0
        self._handle = self.comm.iallreduce(np.array([told]), op="max")

    def renew(self, comm, step):
        """The ranks are now those of `comm`, another one of its own, and their replicas have made `step` steps.

        What was done after the last one is done again: it may have been interrupted.
        """
        self.comm, self.ended = comm, ""
        self._tell()
        self.after_step(step)

    def save(self, step):
        """The folder's last checkpoint is of this step. Collective."""

        def make():
            path = checkpoint.path_of(self.folder, step)
            arrays = resume.on_rank_0(self.parts.model, self.parts.optimizer)
            # Losses are looked at some steps late: a model that is lost must not replace a good one until then.
            for name, array in arrays.items():
                if name.startswith(resume.PARAMETERS) and not np.isfinite(array).all():
                    raise ValueError(f"checkpoint {path} is not written: {name} is not finite; try a lower --lr")
            try:
                checkpoint.save(self.folder, step, arrays, self._about)
            except OSError as error:
                raise ValueError(f"checkpoint {path} cannot be written: {error.strerror or error}") from None
            return b""

        try:
            resume.from_rank_0(self.comm, make)
        except ValueError as error:
            raise NotSaved(error) from None

    def way_on(self):
        """How a run that ended goes on, in one line."""
        return f"ended by {self.ended} after step {self.step} of {self.parts.steps}; to go on: --resume {self.folder}"
