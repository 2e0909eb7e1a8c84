"""A GPT without automatic differentiation: GPT-2's network (Radford et al. 2019) made of layers with their backward."""

import numpy as np

from .attention import CausalAttention
from .layers import GELU, Layer, LayerNorm, Linear, Residual, add_rows
from .models import Sequential, normal
from .parameter import Parameter


class Tokens(Layer):
    """The token's row of a table plus the position's. (batch, context) indices → (batch, context, width).

    backward returns None: indices have no gradient. Fewer positions than the model has are fine.
    """

    def __init__(self, table, positions):
        self.table, self.positions = Parameter("tokens.table", table), Parameter("tokens.positions", positions)
        super().__init__(self.table, self.positions)

    def forward(self, x):
        self.x, table = x, self.table.value
        return np.add(
            table[x], self.positions.value[: x.shape[1]], out=self.memory("y", (*x.shape, table.shape[1]), table)
        )

    def backward(self, grad):
        self.positions.grad[: grad.shape[1]] += grad.sum(axis=0)
        add_rows(self.table.grad, self.x, grad)


class TiedOutput(Layer):
    """logits = x table^T with the tokens' own table (Press and Wolf 2017). (..., width) → (..., vocabulary).

    The table is Tokens' parameter, not its own: its gradient is complete only when Tokens has added to it as well.
    """

    def __init__(self, table):
        super().__init__()
        self.table = table

    def forward(self, x):
        table, self.shape = self.table.value, x.shape
        self.x = x.reshape(-1, table.shape[1])
        y = self.memory("y", (len(self.x), len(table)), table)
        return np.matmul(self.x, table.T, out=y).reshape(*x.shape[:-1], len(table))

    def backward(self, grad):
        grad = grad.reshape(-1, len(self.table.data))
        self.table.grad += grad.T @ self.x
        return np.matmul(grad, self.table.value, out=self.memory("y", self.x.shape, grad)).reshape(self.shape)


class GPT(Sequential):
    """The next character at every position, from all before it: a pre-norm transformer, its output tied to its input.

    forward: indices (batch, up to context) → logits (batch, same, vocabulary). A block is two layers, attention and
    MLP.

    The initial weights are GPT-2's: normal of 0.02, those that add to the residual stream divided by sqrt(2 layers);
    each is a function of the seed, its name and its shape alone, and in float32 that of float64, rounded.

    Memory that is kept for micro-batches of `batch` samples, beside parameters, gradients and the optimizer's:
    batch context (width + layers (30 width + heads context) + 2 width + max(vocabulary, width)) numbers, for values and
    the gradients in their place. What comes and goes beside it is one layer's and the loss's.

    Args:
        vocabulary, context, width, layers, heads: see `recipes`.

    Raises:
        ValueError: heads does not divide width.
    """

    def __init__(self, vocabulary, context, width, layers, heads, seed=0, dtype=np.float32):
        if width % heads:
            raise ValueError(f"GPT: {heads} heads do not divide a width of {width}; {width // heads * heads} would do")
        added = 0.02 / max(1, 2 * layers) ** 0.5

        def linear(name, rows, columns, std):
            return Linear(name, normal(seed, name, (rows, columns), std, dtype), np.zeros(columns, dtype))

        tokens = Tokens(
            normal(seed, "tokens.table", (vocabulary, width), 0.02, dtype),
            normal(seed, "tokens.positions", (context, width), 0.02, dtype),
        )
        stack = [tokens]
        for i in range(layers):
            stack += [
                Residual(
                    LayerNorm(f"block{i}.norm1", width, dtype),
                    linear(f"block{i}.attention", width, 3 * width, 0.02),
                    CausalAttention(heads),
                    linear(f"block{i}.projection", width, width, added),
                ),
                Residual(
                    LayerNorm(f"block{i}.norm2", width, dtype),
                    linear(f"block{i}.up", width, 4 * width, 0.02),
                    GELU(),
                    linear(f"block{i}.down", 4 * width, width, added),
                ),
            ]
        super().__init__([*stack, LayerNorm("norm", width, dtype), TiedOutput(tokens.table)])
