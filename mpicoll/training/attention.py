"""Causal self-attention of several heads (Vaswani et al. 2017), with its backward: products of stacks of matrices."""

import numpy as np

from .layers import Layer, ones


class CausalAttention(Layer):
    """Every position takes a mean of the values at and before it, weighted by softmax(query key / sqrt(depth)).

    forward: (batch, context, 3 width), queries, keys and values side by side, → (batch, context, width). A head has
    depth = width / heads of the columns of each. There are no parameters: Linear layers come before and after.

    One (context, context) matrix of weights per sample and head is kept: batch * heads * context^2 numbers. It has a
    row per key and a column per query: NumPy then takes maxima over the keys row by row, which is faster. Nothing is
    copied to bring heads together: a head is a strided view, which matrix products take as it is.
    """

    def __init__(self, heads):
        super().__init__()
        self.heads = heads

    def split(self, x):
        """(batch, context, n width) → n views (batch, heads, context, depth)."""
        batch, context, columns = x.shape
        n = columns // self.width
        return x.reshape(batch, context, n, self.heads, self.width // self.heads).transpose(2, 0, 3, 1, 4)

    def future(self, weights):
        """(keys, queries), to be added: 0 for keys up to the query, after it a number of which exp makes 0."""
        i = np.arange(weights.shape[-1], like=weights)
        mask = (i[:, None] > i).astype(weights.dtype)
        mask *= np.finfo(weights.dtype).min
        return mask

    def forward(self, x):
        batch, context, columns = x.shape
        self.width = columns // 3
        self.x, self.depth = x, self.width // self.heads
        q, k, v = self.split(x)
        p = self.p = self.memory("p", (batch, self.heads, context, context), x)
        np.matmul(k, q.swapaxes(-1, -2), out=p)
        p *= self.depth**-0.5
        p += self.future(p)
        p -= p.max(axis=-2, keepdims=True)  # exp cannot overflow
        np.exp(p, out=p)
        p /= (ones(p, context) @ p)[..., None, :]
        self.y = self.memory("y", (batch, context, self.width), x)
        np.matmul(p.swapaxes(-1, -2), v, out=self.split(self.y)[0])
        return self.y

    def backward(self, grad):
        # y = p v, p = softmax(s), s = q k^T / sqrt(depth): ds = p (dp - rowsum(p dp)), and rowsum(p dp) is that of
        # y dy, which is shorter (Dao et al. 2022).
        (q, k, v), p = self.split(self.x), self.p
        (dy,), (ydy,) = self.split(grad), self.split(np.multiply(self.y, grad, out=self.y))
        columns = self.memory("columns", self.x.shape, self.x)
        dq, dk, dv = self.split(columns)
        np.matmul(p, dy, out=dv)
        ds = v @ dy.swapaxes(-1, -2)
        ds -= (ydy @ ones(ydy, self.width // self.heads))[..., None, :]
        ds *= p
        ds *= self.depth**-0.5
        np.matmul(ds, q, out=dk)
        np.matmul(ds.swapaxes(-1, -2), k, out=dq)
        return columns
