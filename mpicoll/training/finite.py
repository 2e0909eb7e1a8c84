"""Gradients that are not finite: which parameter, on which rank. A sum of them would only say that there was one."""

import numpy as np

from .replicas import on_host


class FiniteCheck:
    """Every bucket is looked at before it is sent and after it has come back; the ranks tell each other at the end.

    It reads each gradient twice and sends two bytes per parameter. On a device it waits once, at the end.
    """

    def __init__(self):
        self.before = []  # for each parameter, in the order of the buckets: whether its own gradient is finite

    def look(self, bucket):
        """The bucket is about to be sent."""
        self.before += [np.isfinite(view).all() for _, view in bucket.views]

    def verdict(self, comm, buckets):
        """All gradients are finite, and so are their averages.

        Raises:
            FloatingPointError: on every rank, naming parameters and ranks.
        """
        parameters = [p for bucket in buckets for p, _ in bucket.views]
        after = [np.isfinite(view).all() for bucket in buckets for _, view in bucket.views]
        own = on_host(np.stack([*self.before, *after])).astype(np.uint8)
        self.before = []
        everyone = comm.iallgather(own).wait().reshape(comm.size, 2, len(parameters))
        if everyone.all():
            return
        # A bad gradient makes a bad average: only if no rank had one is it the addition that failed.
        when = 0 if not everyone[:, 0].all() else 1
        bad = [
            f"{p.name} on rank(s) {', '.join(map(str, np.flatnonzero(everyone[:, when, i] == 0)))}"
            for i, p in enumerate(parameters)
            if not everyone[:, when, i].all()
        ]
        more = f" and {len(bad) - 3} more parameters" if len(bad) > 3 else ""
        what = "gradients are" if when == 0 else "every rank's gradients are finite, but these averages are"
        raise FloatingPointError(f"finish: {what} not finite: {', '.join(bad[:3])}{more}")
