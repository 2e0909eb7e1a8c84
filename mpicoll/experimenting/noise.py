"""The gradient noise scale: how large a batch may be before more samples per step stop paying.

B_simple = tr(S) / |G|^2, S the covariance of a sample's gradient and G the true gradient (McCandlish et al. 2018, with
the estimates of its appendix A.1): the squared norm of a mean over b samples is expected to be |G|^2 + tr(S) / b. Data
parallelism gives two of them for nothing, of a rank's own gradients (b samples) and of their average (B samples).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..training.exchanges import AllReduce


def scale(local: Any, averaged: Any, b: int, big: int) -> float:
    """The noise scale in samples, from squared norms of gradients over b and over `big` samples; not below 0.

    Both estimates are averaged over the steps before they are divided: one step's are very uncertain. Where the
    gradient is lost in its noise the scale is infinite.

    Raises:
        ValueError: big is not above b.
    """
    if big <= b:
        raise ValueError(f"noise scale: two batch sizes are compared, {big} has to be above {b}")
    small, large = float(np.mean(local)), float(np.mean(averaged))
    gradient = (big * large - b * small) / (big - b)
    noise = max(0.0, (small - large) / (1 / b - 1 / big))
    return noise / gradient if gradient > 0 else float("inf")


class Norms(AllReduce):
    """An all-reduce that keeps the squared norms of what goes in and of what comes out, a number for each bucket."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.local: list[Any] = []
        self.averaged: list[Any] = []

    def __call__(self, comm: Any, bucket: Any) -> Any:
        self.local.append(square(bucket.flat))
        yield from super().__call__(comm, bucket)  # type: ignore[no-untyped-call]
        self.averaged.append(square(bucket.flat))

    def steps(self, comm: Any, buckets: int) -> tuple[Any, Any]:
        """Squared norms of every step: of a rank's gradients, as the mean over ranks; of the average. Collective."""
        both = np.array([[float(x) for x in norms] for norms in (self.local, self.averaged)])
        local, averaged = comm.allreduce(both.reshape(2, -1, buckets).sum(axis=2), op="avg")
        return local, averaged


def square(flat: Any) -> Any:
    return (flat * flat).sum(dtype=np.float64)
