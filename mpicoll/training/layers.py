"""Layers with a hand-written backward: no automatic differentiation, no MPI.

A layer's `forward` keeps what its `backward` needs; `backward` takes the gradient of the loss by the layer's output,
ADDS the gradients by its parameters into their `grad` and returns the gradient by its input. Adding lets micro-batches
accumulate, and lets `grad` be a view into a bucket that is sent as it is.

Memory: what `forward` and `backward` return is the layer's own memory, kept from step to step, and overwritten by its
next call of either; a layer writes into no other's. So a gradient mostly takes the place of a value that is used up,
and there is one backward for each forward.

Precision: parameters and gradients may have 16 bits (mixed precision). A layer computes in float32 then: it widens its
weights as it uses them, its other arrays are float32, and a gradient is rounded when it is added to `grad`, so that
micro-batches add up with a rounding each.

Shapes: a batch is the first axis. Every array has the dtype of the layer's values, and is of their kind: NumPy's
functions hand arrays of another library over to it (`__array_ufunc__`, `__array_function__`, and `like=` where nothing
else says whose function is meant), so this text also runs on CuPy arrays. Nothing here needs a value on the host, so
the host goes on while the device computes.
"""

import math

import numpy as np

from .parameter import Parameter


class Layer:
    """A step of a model: `parameters` in the order of their use, forward and backward.

    Attributes:
        layers: those it is made of, if it is.
    """

    layers = ()

    def __init__(self, *parameters):
        self.parameters, self._memory = parameters, {}

    def memory(self, name, shape, like):
        """An array of this shape, of the dtype and kind of `like`, with anything in it; one memory for each name."""
        size = math.prod(shape)
        if name not in self._memory or self._memory[name].size < size:
            self._memory[name] = np.empty_like(like, shape=(size,))
        return self._memory[name][:size].reshape(shape)

    @property
    def memory_bytes(self):
        """What it and its layers keep from step to step, without parameters."""
        own = sum(array.nbytes for array in self._memory.values())
        return own + sum(layer.memory_bytes for layer in self.layers)

    def forward(self, x):
        raise NotImplementedError

    def backward(self, grad):
        raise NotImplementedError


def ones(like, count):
    """(count,) of them: a product with them is a sum, and on the host several times as fast as NumPy's own."""
    return np.zeros_like(like, shape=(count,)) + 1


class Embedding(Layer):
    """Row `x[i, k]` of a table for every index, the rows of a sample side by side.

    forward: indices (batch, context) → (batch, context * width). backward returns None: indices have no gradient.
    """

    def __init__(self, name, table):
        self.table = Parameter(f"{name}.table", table)
        super().__init__(self.table)

    def forward(self, x):
        self.x, table = x, self.table.value
        return table[x].reshape(len(x), x.shape[1] * table.shape[1])

    def backward(self, grad):
        add_rows(self.table.grad, self.x, grad)


def add_rows(table, indices, rows):
    """table[index] += row, for all indices and as many rows, of any leading axes."""
    indices = indices.reshape(-1)
    add = _add_sorted if isinstance(indices, np.ndarray) else _add_product
    add(table, indices, rows.reshape(len(indices), table.shape[1]))


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


class Scale(Layer):
    """x factor, of the dtype given. Any shape → same. The first layer of a model: backward returns None."""

    def __init__(self, factor, dtype):
        super().__init__()
        self.factor, self.dtype = factor, dtype

    def forward(self, x):
        y = x.astype(self.dtype)
        y *= self.factor
        return y

    def backward(self, grad):
        """There is nothing below."""


class Linear(Layer):
    """y = x W + b. forward: (..., inputs) → (..., outputs); W is (inputs, outputs), b is (outputs,)."""

    def __init__(self, name, weight, bias):
        self.weight, self.bias = Parameter(f"{name}.weight", weight), Parameter(f"{name}.bias", bias)
        super().__init__(self.weight, self.bias)

    def forward(self, x):
        weight, self.shape = self.weight.value, x.shape
        self.x = x.reshape(-1, len(weight))  # one large product, not one per sample
        y = np.matmul(self.x, weight, out=self.memory("y", (len(self.x), weight.shape[1]), weight))
        y += self.bias.value
        return y.reshape(*x.shape[:-1], weight.shape[1])

    def backward(self, grad):
        weight, grad = self.weight.value, grad.reshape(-1, self.weight.data.shape[1])
        self.weight.grad += self.x.T @ grad
        self.bias.grad += ones(grad, len(grad)) @ grad
        return np.matmul(grad, weight.T, out=self.memory("y", self.x.shape, weight)).reshape(self.shape)


class ReLU(Layer):
    """max(x, 0). Any shape → same."""

    def forward(self, x):
        self.y = np.maximum(x, 0, out=self.memory("y", x.shape, x))
        return self.y

    def backward(self, grad):
        return np.multiply(grad, self.y > 0, out=self.y)


class GELU(Layer):
    """x times the chance that a normal number is below x (Hendrycks and Gimpel 2016), in GPT-2's approximation by tanh.

    gelu(x) = x s, s = (1 + tanh u) / 2, u = a x + b x^3. Any shape → same. It keeps x and s.
    """

    A, B = (2 / math.pi) ** 0.5, 0.044715 * (2 / math.pi) ** 0.5

    def forward(self, x):
        self.x, self.s = x, self.memory("s", x.shape, x)
        s = np.multiply(x, x, out=self.s)
        s *= self.B
        s += self.A
        s *= x
        np.tanh(s, out=s)
        s += 1
        s *= 0.5
        return np.multiply(x, s, out=self.memory("y", x.shape, x))

    def backward(self, grad):
        # gelu' = s + x s', where s' = 2 s (1 - s) u' and x u' = x (a + 3 b x^2)
        x, s, slope = self.x, self.s, self.memory("y", self.x.shape, self.x)
        np.multiply(x, x, out=slope)
        slope *= 6 * self.B
        slope += 2 * self.A
        slope *= x
        slope *= s
        s -= 1
        slope *= s  # now -x s'
        s += 1
        np.subtract(s, slope, out=slope)
        slope *= grad
        return slope


class LayerNorm(Layer):
    """y = gain z + bias, z = (x - mean) / sqrt(variance + 1e-5) along the last axis (Ba et al. 2016).

    (..., width) → same; gain and bias are (width,), one and zero at first. It keeps z.
    """

    def __init__(self, name, width, dtype=np.float32):
        self.gain = Parameter(f"{name}.gain", np.ones(width, dtype))
        self.bias = Parameter(f"{name}.bias", np.zeros(width, dtype))
        super().__init__(self.gain, self.bias)

    def forward(self, x):
        y, mean = self.memory("y", x.shape, x), ones(x, x.shape[-1]) / x.shape[-1]
        z = self.z = np.subtract(x, (x @ mean)[..., None], out=self.memory("z", x.shape, x))
        scale = (np.multiply(z, z, out=y) @ mean)[..., None]
        scale += 1e-5
        self.scale = np.divide(1, np.sqrt(scale, out=scale), out=scale)
        z *= scale
        np.multiply(z, self.gain.value, out=y)
        y += self.bias.value
        return y

    def backward(self, grad):
        # With g = grad gain: (g - mean(g) - z mean(g z)) scale. Both means are products with the gain.
        gain, z, width = self.gain.value, self.z, len(self.gain.data)
        y = np.multiply(grad, z, out=self.memory("y", z.shape, z))
        rows = ones(y, y.size // width)
        self.gain.grad += rows @ y.reshape(-1, width)
        self.bias.grad += rows @ grad.reshape(-1, width)
        z *= (y @ gain)[..., None] / width
        z += (grad @ gain)[..., None] / width
        np.multiply(grad, gain, out=y)
        y -= z
        y *= self.scale
        return y


class Residual(Layer):
    """x + f(x), f being layers one after another that keep the shape (He et al. 2016)."""

    def __init__(self, *layers):
        self.layers = layers
        super().__init__(*(p for layer in layers for p in layer.parameters))

    def forward(self, x):
        y = x
        for layer in self.layers:
            y = layer.forward(y)
        return np.add(x, y, out=self.memory("y", x.shape, x))

    def backward(self, grad, after_layer=lambda layer: None):
        """As every layer's; after_layer is called with each of `layers`, as in `models.Sequential.backward`."""
        inner = grad
        for layer in reversed(self.layers):
            inner = layer.backward(inner)
            after_layer(layer)
        return np.add(grad, inner, out=self.memory("y", grad.shape, grad))
