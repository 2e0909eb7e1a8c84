"""Which parameters take part in a step, where not all of them do and not the same ones on all ranks."""

import numpy as np

from .exchanges import formula


class Usage:
    """Of a step with parameters that take no part: who used what, and the old gradients of what nobody used.

    A gradient that a rank did not add to is averaged like any other: what it adds is zero. Where no rank has used a
    parameter, its gradient afterwards has the bits it had before.
    """

    def __init__(self, parameters):
        self.parameters = parameters
        self.used, self.idle, self.old = set(), set(), {}

    def report(self, used):
        """The last forward used these parameters; returns the others."""
        used = set(used)
        self.used |= used
        self.idle = {p for p in self.parameters if p not in used}
        self.old = {p: p.grad.copy() for p in self.idle if p not in self.used}
        return [p for p in self.parameters if p in self.idle]

    def ask(self, comm):
        """The handle of (parameters,) uint8: 1 for what some rank has used."""
        return comm.iallreduce(np.array([p in self.used for p in self.parameters], np.uint8), op="max")

    def settle(self, used):
        """What no rank has used has its old gradient, and is returned; the next step begins."""
        unused = [p for p, any_rank in zip(self.parameters, used, strict=True) if not any_rank]
        for p in unused:
            p.grad[...] = self.old[p]
        self.used, self.idle, self.old = set(), set(), {}
        return unused

    def bytes_sent(self, comm):
        """By this rank in a step, by the closed forms of `cost`."""
        return formula(comm, "allreduce", np.empty(len(self.parameters), np.uint8))
