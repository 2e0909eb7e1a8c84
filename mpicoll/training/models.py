"""Models: a list of layers, and a backward that says after each layer that its gradients are complete."""

import numpy as np

from .layers import Embedding, Linear, ReLU


class Sequential:
    """Layers one after another.

    Attributes:
        layers: in forward order.
        parameters: all of them, in forward order; their gradients become complete in about the reverse order.
    """

    def __init__(self, layers):
        self.layers = list(layers)
        self.parameters = [p for layer in self.layers for p in layer.parameters]

    def to(self, place):
        """The model itself; the data and the gradient of every parameter are what `place` made of them.

        Comes before a reducer and an optimizer, which make arrays like the parameters' and views.

        Args:
            place: array → array, such as `cupy.asarray`.
        """
        for p in self.parameters:
            p.data, p.grad = place(p.data), place(p.grad)
        return self

    def forward(self, x):
        """The output for a batch; every layer keeps what its backward needs."""
        for layer in self.layers:
            x = layer.forward(x)
        return x

    def backward(self, grad, after_layer=lambda layer: None):
        """Every parameter's gradient has been added to its `grad`, for the last forward.

        Args:
            grad: the gradient of the loss by the output.
            after_layer: called with each layer as soon as its own gradients are complete, last layer first; this is
                where communication starts while the layers below are still computing.
        """
        for layer in reversed(self.layers):
            grad = layer.backward(grad)
            after_layer(layer)


class CharMLP(Sequential):
    """The next character from the last `context` ones: embedding, hidden layers, logits (Bengio et al. 2003).

    forward: indices (batch, context) → logits (batch, vocabulary). The initial weights are a function of `seed` and the
    shapes alone: in float32 they are those of float64, rounded.
    """

    def __init__(self, vocabulary, context, embedding, hidden, layers, seed=0, dtype=np.float32):
        rng = np.random.default_rng(seed)

        def weights(rows, columns, scale):
            return (rng.standard_normal((rows, columns)) * scale).astype(dtype)

        def linear(name, rows, columns, gain):
            # He et al. 2015: the variance of the activations stays the same from layer to layer.
            return Linear(name, weights(rows, columns, (gain / rows) ** 0.5), np.zeros(columns, dtype))

        stack = [Embedding("embedding", weights(vocabulary, embedding, 1.0))]
        width = context * embedding
        for i in range(layers):
            stack += [linear(f"hidden{i}", width, hidden, 2.0), ReLU()]
            width = hidden
        # Small logits at the start: the first loss is that of uniform guessing.
        stack.append(linear("output", width, vocabulary, 0.01))
        super().__init__(stack)
