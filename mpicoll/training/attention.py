"""Causal self-attention of several heads (Vaswani et al. 2017), with its backward: products of stacks of matrices."""

import numpy as np

from .layers import Layer


class CausalAttention(Layer):
    """Every position takes a mean of the values at and before it, weighted by softmax(query key / sqrt(depth)).

    forward: (batch, context, 3 width), queries, keys and values side by side, → (batch, context, width). A head has
    depth = width / heads of the columns of each. There are no parameters: Linear layers come before and after.

    One (context, context) matrix of weights per sample and head is kept: batch * heads * context^2 numbers. It has a
    row per key and a column per query, so that NumPy goes along rows where it sums over the keys; and it is not divided
    by these sums, what is shorter is. Nothing is copied to bring heads together: a head is a strided view, which matrix
    products take as it is.
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
        e = self.e = self.memory("e", (batch, self.heads, context, context), x)
        self.y = self.memory("y", (batch, context, self.width), x)
        (y,) = self.split(self.y)
        scaled = np.multiply(q, self.depth**-0.5, out=y)
        np.matmul(k, scaled.swapaxes(-1, -2), out=e)
        e += self.future(e)
        e -= e.max(axis=-2, keepdims=True)  # exp cannot overflow, and no sum is below 1
        np.exp(e, out=e)
        self.total = (np.ones_like(e, shape=(context,)) @ e)[..., None]
        np.matmul(e.swapaxes(-1, -2), v, out=y)
        y /= self.total
        return self.y

    def backward(self, grad):
        # y = p v, p = softmax(s), s = q k^T / sqrt(depth): ds = p (dp - rowsum(p dp)), and rowsum(p dp) is that of
        # y dy, which is shorter (Dao et al. 2022). Here p is e / total: dy is divided instead.
        (q, k, v), e = self.split(self.x), self.e
        (y,), (dy,) = self.split(self.y), self.split(grad)
        columns = self.memory("columns", self.x.shape, self.x)
        dq, dk, dv = self.split(columns)
        dy = np.divide(dy, self.total, out=dq)  # where dq is to be, in the end
        np.multiply(y, dy, out=y)
        sums = y @ np.ones_like(e, shape=(self.width // self.heads,))
        np.matmul(e, dy, out=dv)
        ds = v @ dy.swapaxes(-1, -2)
        ds -= sums[..., None, :]
        ds *= e
        np.matmul(ds, q, out=dk)
        np.matmul(ds.swapaxes(-1, -2), k, out=dq)
        columns[..., : 2 * self.width] *= self.depth**-0.5
        return columns
