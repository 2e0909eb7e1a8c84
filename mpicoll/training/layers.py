"""Layers with a hand-written backward: no automatic differentiation, no MPI.

A layer's `forward` keeps what its `backward` needs; `backward` takes the gradient of the loss by the layer's output,
ADDS the gradients by its parameters into their `grad` and returns the gradient by its input. Adding lets micro-batches
accumulate, and lets `grad` be a view into a bucket that is sent as it is.

Shapes: a batch is the first axis. Every array has the dtype of the layer's parameters, and is of their kind: NumPy's
functions hand arrays of another library over to it (`__array_ufunc__`, `__array_function__`, and `like=` where nothing
else says whose function is meant), so this text also runs on CuPy arrays. Nothing here needs a value on the host, so
the host goes on while the device computes.
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
        self.name, self.data = name, np.asarray(data, order="C", like=data)
        self.grad = np.zeros_like(self.data)

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
        indices = self.x.reshape(-1)
        add = _add_sorted if isinstance(indices, np.ndarray) else _add_product
        add(self.table.grad, indices, grad.reshape(len(indices), self.table.data.shape[1]))


# Two ways to table[indices[i]] += rows[i] for all i. In both the order of additions, hence the bits, is a function of
# the batch alone; it is not in np.add.at, which adds in whatever order the threads of a device come, and is slow.


def _add_sorted(table, indices, rows):
    """For the host: equal indices are brought together, by a stable sort, and each run is added up at once."""
    order = np.argsort(indices, kind="stable")
    present, starts = np.unique(indices[order], return_index=True)  # as many as there are: a device would be waited for
    if len(present):
        table[present] += np.add.reduceat(rows[order], starts)


def _add_product(table, indices, rows):
    """For devices: picking rows is a product with one-hot rows, adding them up one with its transpose.

    No size depends on the data. It takes len(table) * len(indices) numbers of memory, little for characters, much for a
    vocabulary of words; and a row that is not finite spreads over the table.
    """
    one_hot = np.arange(len(table), like=indices)[:, None] == indices
    table += one_hot.astype(rows.dtype) @ rows


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
