"""Layers with a hand-written backward: no automatic differentiation, no MPI.

A layer's `forward` keeps what its `backward` needs; `backward` takes the gradient of the loss by the layer's output,
ADDS the gradients by its parameters into their `grad` and returns the gradient by its input. Adding lets micro-batches
accumulate, and lets `grad` be a view into a bucket that is sent as it is.

Shapes: a batch is the first axis. Every array has the dtype of the layer's parameters.
"""

import numpy as np


class Parameter:
    """An array that is trained.

    Attributes:
        name: unique within a model, for messages.
        data: the values, C-contiguous.
        grad: the accumulated gradient, like data. A reducer replaces it once by a view into a bucket; whoever computes
            a gradient adds into it and never rebinds it.
    """

    __slots__ = ("data", "grad", "name")

    def __init__(self, name, data):
        self.name, self.data, self.grad = name, np.ascontiguousarray(data), np.zeros_like(data, order="C")

    def __repr__(self):
        return f"Parameter({self.name!r}, {self.data.dtype}{list(self.data.shape)})"


class Layer:
    """A step of a model: `parameters` in the order of their use, forward and backward."""

    parameters = ()

    def forward(self, x):
        raise NotImplementedError

    def backward(self, grad):
        raise NotImplementedError


class Embedding(Layer):
    """Row `x[i, k]` of a table for every index, the rows of a sample side by side.

    forward: indices (batch, context) → (batch, context * width). backward returns None: indices have no gradient.
    """

    def __init__(self, name, table):
        self.table = Parameter(f"{name}.table", table)
        self.parameters = (self.table,)

    def forward(self, x):
        self.x = x
        return self.table.data[x].reshape(len(x), x.shape[1] * self.table.data.shape[1])

    def backward(self, grad):
        # Equal indices are brought together and each run is added up at once: np.add.at is far slower, and a stable
        # sort keeps the order of additions, hence the bits, a function of the batch alone.
        indices = self.x.reshape(-1)
        order = np.argsort(indices, kind="stable")
        rows, starts = np.unique(indices[order], return_index=True)
        if len(rows):
            self.table.grad[rows] += np.add.reduceat(grad.reshape(len(indices), -1)[order], starts)


class Linear(Layer):
    """y = x W + b. forward: (batch, inputs) → (batch, outputs); W is (inputs, outputs), b is (outputs,)."""

    def __init__(self, name, weight, bias):
        self.weight, self.bias = Parameter(f"{name}.weight", weight), Parameter(f"{name}.bias", bias)
        self.parameters = (self.weight, self.bias)

    def forward(self, x):
        self.x = x
        y = x @ self.weight.data
        y += self.bias.data
        return y

    def backward(self, grad):
        self.weight.grad += self.x.T @ grad
        self.bias.grad += grad.sum(axis=0)
        return grad @ self.weight.data.T


class ReLU(Layer):
    """max(x, 0). (batch, width) → same."""

    def forward(self, x):
        self.y = np.maximum(x, 0)
        return self.y

    def backward(self, grad):
        return grad * (self.y > 0)
