"""A model that trains data-parallel by the same calls as in one process (the first goal of Li et al., VLDB 2020)."""

import time

from .. import gpu
from .reducer import Reducer


class DistributedDataParallel(Reducer):
    """`model` on every rank of `comm`: call its forward and backward here, and gradients are those of all ranks.

    It is the Reducer of the model's gradients, called by the model's own backward. What else is called between
    forward and backward, and the optimizer, stay the same.

    Args:
        model: has `parameters`, `forward(x)` and `backward(grad, after_layer)`, see `models.Sequential`; with
            find_unused_parameters also `used`, the parameters that took part in the last forward.
        comm, bucket_cap_mb, first_bucket_mb, options: as for Reducer.

    Attributes:
        model: the one passed; from now on its gradients are views into buckets.
        parameters: the model's.
        backward_s: seconds of the last backward, until the gradients were computed.

    Raises:
        ValueError, TypeError: as for Reducer.
    """

    def __init__(self, model, comm, bucket_cap_mb=25, first_bucket_mb=1, **options):
        super().__init__(comm, model.parameters, bucket_cap_mb, first_bucket_mb, **options)
        self.model, self.parameters, self.backward_s = model, model.parameters, 0.0
        self._reports = options.get("find_unused_parameters", False)

    def forward(self, x):
        """The model's output for this rank's samples."""
        with gpu.span("forward"):
            return self.model.forward(x)

    def backward(self, grad):
        """Every gradient is averaged over the ranks; inside `no_sync` it is only added to, and nothing is sent.

        Args:
            grad: the gradient of this rank's loss by the output. The mean over this rank's samples becomes the mean
                over those of all ranks, where all have as many.
        """
        if self._reports:  # only now: a forward without a backward, to evaluate the model, is no part of a step
            self.report_used(self.model.used)
        start = time.perf_counter()
        with gpu.span("backward"):
            self.model.backward(grad, self._after_layer)
        if self._synchronise:
            self.finish()
            self.backward_s = self.computed_at - start

    def _after_layer(self, layer):
        for parameter in reversed(layer.parameters):
            self.mark_ready(parameter)
        self.comm.progress()
