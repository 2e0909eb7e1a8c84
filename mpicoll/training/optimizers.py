"""Optimizers: they change `parameter.data` by `parameter.grad`, in place, and know nothing of ranks.

Replicas stay bit-identical because equal gradients go through the same arithmetic on every rank. All arrays are like
the parameters': on the device where these are, see `layers`.
"""

import numpy as np


class Optimizer:
    """`lr` may be changed between steps (a schedule); `zero_grad` makes every gradient zero in place."""

    def __init__(self, parameters, lr):
        self.parameters, self.lr = list(parameters), lr
        # One piece of scratch serves all parameters: the largest of each dtype.
        largest = {p.data.dtype: p.data for p in sorted(self.parameters, key=lambda p: p.data.size)}
        self.scratch = {dtype: np.empty_like(data.reshape(-1)) for dtype, data in largest.items()}

    def temporary(self, array):
        """Scratch in the shape and dtype of `array`, with nothing in it yet."""
        return self.scratch[array.dtype][: array.size].reshape(array.shape)

    def zero_grad(self):
        """Every gradient is zero."""
        for p in self.parameters:
            p.grad.fill(0)

    def step(self):
        """The parameters have moved by one step; gradients are only read."""
        raise NotImplementedError


class SGD(Optimizer):
    """Stochastic gradient descent with momentum: v = momentum v + g; data -= lr v (Polyak 1964, PyTorch's form)."""

    def __init__(self, parameters, lr, momentum=0.9):
        super().__init__(parameters, lr)
        self.momentum, self.velocity = momentum, [np.zeros_like(p.data) for p in self.parameters]

    def step(self):
        for p, v in zip(self.parameters, self.velocity, strict=True):
            v *= self.momentum
            v += p.grad
            p.data -= np.multiply(v, self.lr, out=self.temporary(v))


class AdamW(Optimizer):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019); only matrices decay, not biases and gains."""

    def __init__(self, parameters, lr, betas=(0.9, 0.99), epsilon=1e-8, weight_decay=0.01):
        super().__init__(parameters, lr)
        self.betas, self.epsilon, self.weight_decay = betas, epsilon, weight_decay
        self.first = [np.zeros_like(p.data) for p in self.parameters]
        self.second = [np.zeros_like(p.data) for p in self.parameters]
        self.steps = 0

    def step(self):
        self.steps += 1
        b1, b2 = self.betas
        # m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps), with the corrections moved out of the arrays.
        root = (1 - b2**self.steps) ** 0.5
        rate, epsilon = self.lr * root / (1 - b1**self.steps), self.epsilon * root
        for p, m, v in zip(self.parameters, self.first, self.second, strict=True):
            t = self.temporary(m)
            m *= b1
            m += np.multiply(p.grad, 1 - b1, out=t)
            np.multiply(p.grad, p.grad, out=t)
            t *= 1 - b2
            v *= b2
            v += t
            np.sqrt(v, out=t)
            t += epsilon
            np.divide(m, t, out=t)
            t *= rate
            if p.data.ndim > 1 and self.weight_decay:
                p.data *= 1 - self.lr * self.weight_decay
            p.data -= t


def clip(parameters, limit):
    """The gradients' norm over all parameters is `limit` at most: they were scaled in place if it was above.

    On gradients averaged over ranks, as a reducer leaves them, the norm is the one process's. It is computed by NumPy's
    own sums, in float64, not by a BLAS, which may differ between machines: replicas stay alike.

    Returns:
        The norm before, float64, where the gradients are.
    """
    norm = np.sqrt(sum((p.grad * p.grad).sum(dtype=np.float64) for p in parameters))
    factor = limit / np.maximum(norm, limit)
    for p in parameters:
        p.grad *= factor.astype(p.grad.dtype)
    return norm


def warmup_steps(steps, warmup):
    """The steps in which the rate rises, as a fraction `warmup` of all: at least one."""
    return max(1, round(warmup * steps))


def warmup_decay(step, steps, warmup=0.05, floor=0.05):
    """The factor on the learning rate at `step` of `steps`: up in a line, then down along a cosine to `floor`."""
    rise = warmup_steps(steps, warmup)
    if step < rise:
        return (step + 1) / rise
    return floor + (1 - floor) * 0.5 * (1 + np.cos(np.pi * (step - rise) / max(1, steps - rise)))
