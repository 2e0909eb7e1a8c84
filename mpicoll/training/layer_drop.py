"""Layers left out at random, other ones on each rank: LayerDrop (Fan et al., ICLR 2020)."""

import numpy as np

from .layers import Residual
from .models import Sequential


class LayerDrop:
    """`model`, each forward of which leaves out every Residual layer with probability `rate`.

    What is left out passes its input on. Evaluate the model itself, which is whole. The layers that are left out are a
    function of (seed, rank, number of the forward).

    Attributes:
        parameters: the model's, all of them.
        used: those of the last forward.
        forwards: how many there were.

    Raises:
        ValueError: the model has no Residual layers.
    """

    def __init__(self, model, rate, seed=0, rank=0):
        if not any(isinstance(layer, Residual) for layer in model.layers):
            raise ValueError(f"LayerDrop: {type(model).__name__} has no Residual layers, which alone can be left out")
        self.model, self.parameters, self.rate = model, model.parameters, rate
        self._key, self.forwards, self._part = [seed, rank], 0, model

    @property
    def memory_bytes(self):
        """As the model's."""
        return self.model.memory_bytes

    @property
    def used(self):
        return self._part.parameters

    def forward(self, x):
        """The output for a batch, of the layers that are drawn."""
        rng = np.random.default_rng([*self._key, self.forwards])
        self.forwards += 1
        kept = [layer for layer in self.model.layers if not isinstance(layer, Residual) or rng.random() >= self.rate]
        self._part = Sequential(kept)
        return self._part.forward(x)

    def backward(self, grad, after_layer=lambda layer: None):
        """As the model's, for the layers of the last forward."""
        self._part.backward(grad, after_layer)
