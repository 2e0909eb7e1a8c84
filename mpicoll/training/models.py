"""Models: a list of layers, and a backward that says after each layer that its gradients are complete."""

import numpy as np

from .layers import Embedding, Linear, ReLU, Scale


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

    @property
    def memory_bytes(self):
        """What the layers keep from step to step, without parameters: it grows to what the largest batch needs."""
        return sum(layer.memory_bytes for layer in self.layers)

    def forward(self, x):
        """The output for a batch; every layer keeps what its backward needs."""
        for layer in self.layers:
            x = layer.forward(x)
        return x

    def backward(self, grad, after_layer=lambda layer: None):
        """Every parameter's gradient has been added to its `grad`, for the last forward.

        Args:
            grad: the gradient of the loss by the output.
            after_layer: called with each layer as soon as its own gradients are complete, last layer first, with the
                layers inside of one instead of that one; this is where communication starts while the layers below are
                still computing.
        """
        for layer in reversed(self.layers):
            if layer.layers:
                grad = layer.backward(grad, after_layer)
            else:
                grad = layer.backward(grad)
                after_layer(layer)


def normal(seed, name, shape, std, dtype):
    """Initial weights: normal numbers, a function of (seed, name, shape), by a counter-based generator (Philox)."""
    rng = np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, *name.encode()])))
    return (rng.standard_normal(shape) * std).astype(dtype)


def perceptron(rng, inputs, hidden, layers, outputs, dtype):
    """Linear and ReLU in turn, `layers` times, then a Linear to the outputs; weights are drawn from rng in order."""

    def linear(name, rows, columns, gain):
        # He et al. 2015: the variance of the activations stays the same from layer to layer.
        weight = (rng.standard_normal((rows, columns)) * (gain / rows) ** 0.5).astype(dtype)
        return Linear(name, weight, np.zeros(columns, dtype))

    for i in range(layers):
        yield linear(f"hidden{i}", inputs, hidden, 2.0)
        yield ReLU()
        inputs = hidden
    # Small logits at the start: the first loss is that of uniform guessing.
    yield linear("output", inputs, outputs, 0.01)


class CharMLP(Sequential):
    """The next character from the last `context` ones: embedding, hidden layers, logits (Bengio et al. 2003).

    forward: indices (batch, context) → logits (batch, vocabulary). The initial weights are a function of `seed` and the
    shapes alone: in float32 they are those of float64, rounded.
    """

    def __init__(self, vocabulary, context, embedding, hidden, layers, seed=0, dtype=np.float32):
        rng = np.random.default_rng(seed)
        table = rng.standard_normal((vocabulary, embedding)).astype(dtype)
        stack = perceptron(rng, context * embedding, hidden, layers, vocabulary, dtype)
        super().__init__([Embedding("embedding", table), *stack])


class ImageMLP(Sequential):
    """The class of an image from its pixels: hidden layers, logits. forward: (batch, pixels) → (batch, classes).

    Pixels are numbers from 0 to `white`, such as integers. The initial weights are a function of `seed` and the shapes.
    """

    def __init__(self, pixels, white, classes, hidden, layers, seed=0, dtype=np.float32):
        stack = perceptron(np.random.default_rng(seed), pixels, hidden, layers, classes, dtype)
        super().__init__([Scale(1 / white, dtype), *stack])
