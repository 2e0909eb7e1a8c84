"""Optimizers: they change `parameter.data` by `parameter.grad`, in place, and know nothing of ranks.

Replicas stay bit-identical because equal gradients go through the same arithmetic on every rank. All arrays are like
the parameters': on the device where these are, see `layers`.

Parameters of 16 bits would stand still: a step is often less than half of their last bit. So they have float32 masters,
which move, and are their rounding (Micikevicius et al., ICLR 2018). AdamW keeps 16 bytes per parameter then: 2 of data
and 2 of gradient, 4 of master and of each moment; beside that, scratch for the largest parameter.
"""

import numpy as np

from .parameter import widened


class Optimizer:
    """`lr` may be changed between steps (a schedule); `zero_grad` makes every gradient zero in place.

    Attributes:
        masters: what moves: every parameter's data, or a float32 copy where that has 16 bits.
        scale: gradients are those of the loss times this, see `loss_scale`.
        replicated: every rank's optimizer has all of the state.
    """

    scale, replicated = 1.0, True
    kept: tuple[str, ...] = ()  # what a step leaves for the next one: attributes with an array per parameter,
    counted: tuple[str, ...] = ()  # and numbers

    def __init__(self, parameters, lr):
        self.parameters, self.lr = list(parameters), lr
        self.masters = [widened(p.data) for p in self.parameters]
        # One piece of scratch serves all parameters: the largest of each dtype.
        largest = {master.dtype: master for master in sorted(self.masters, key=lambda master: master.size)}
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

    def _kept(self):
        lists = [("masters", self.masters), *((name, getattr(self, name)) for name in self.kept)]
        pairs = ((name, p, array) for name, arrays in lists for p, array in zip(self.parameters, arrays, strict=True))
        return {f"{name}.{p.name}": array for name, p, array in pairs if array is not p.data}

    def state(self):
        """name → array of all that the next step depends on, beside parameters, their gradients and the rate."""
        return {**self._kept(), **{name: np.array(getattr(self, name)) for name in self.counted}}

    def restore(self, state):
        """What `state` gives has these values, from arrays on the host."""
        for name, array in self._kept().items():
            array[...] = np.asarray(state[name], like=array)
        for name in self.counted:
            setattr(self, name, state[name].item())

    def report(self):
        """What the record of a step says of the optimizer."""
        return {}

    def moving(self, *states):
        """(master, gradient, its states) of every parameter in turn; what is done to the master, data follows."""
        for p, master, *state in zip(self.parameters, self.masters, *states, strict=True):
            grad = p.grad if p.grad.dtype == master.dtype else p.grad.astype(master.dtype)
            yield master, grad if self.scale == 1 else grad / self.scale, *state
            if master is not p.data:
                p.data[...] = master


class SGD(Optimizer):
    """Stochastic gradient descent with momentum: v = momentum v + g; data -= lr v (Polyak 1964, PyTorch's form)."""

    kept = ("velocity",)

    def __init__(self, parameters, lr, momentum=0.9):
        super().__init__(parameters, lr)
        self.momentum, self.velocity = momentum, [np.zeros_like(x) for x in self.masters]

    def step(self):
        for x, grad, v in self.moving(self.velocity):
            v *= self.momentum
            v += grad
            x -= np.multiply(v, self.lr, out=self.temporary(v))


class AdamW(Optimizer):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019); only matrices decay, not biases and gains."""

    kept, counted = ("first", "second"), ("steps",)

    def __init__(self, parameters, lr, betas=(0.9, 0.99), epsilon=1e-8, weight_decay=0.01):
        super().__init__(parameters, lr)
        self.betas, self.epsilon, self.weight_decay = betas, epsilon, weight_decay
        self.first = [np.zeros_like(x) for x in self.masters]
        self.second = [np.zeros_like(x) for x in self.masters]
        self.steps = 0

    def step(self):
        self.steps += 1
        b1, b2 = self.betas
        # m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps), with the corrections moved out of the arrays.
        root = (1 - b2**self.steps) ** 0.5
        rate, epsilon = self.lr * root / (1 - b1**self.steps), self.epsilon * root
        for x, grad, m, v in self.moving(self.first, self.second):
            t = self.temporary(m)
            m *= b1
            m += np.multiply(grad, 1 - b1, out=t)
            np.multiply(grad, grad, out=t)
            t *= 1 - b2
            v *= b2
            v += t
            np.sqrt(v, out=t)
            t += epsilon
            np.divide(m, t, out=t)
            t *= rate
            if x.ndim > 1 and self.weight_decay:
                x *= 1 - self.lr * self.weight_decay
            x -= t


def clip(parameters, limit, scale=1.0):
    """The gradients' norm over all parameters is `limit` at most: they were scaled in place if it was above.

    On gradients averaged over ranks, as a reducer leaves them, the norm is the one process's. It is computed by NumPy's
    own sums, in float64, not by a BLAS, which may differ between machines: replicas stay alike. Gradients of 16 bits
    are squared and scaled in float32.

    Args:
        scale: gradients are those of the loss times this; limit and norm are the loss's own.

    Returns:
        The norm before, float64, where the gradients are.
    """
    wide = (widened(p.grad) for p in parameters)
    norm = np.sqrt(sum((grad * grad).sum(dtype=np.float64) for grad in wide))
    limit = limit * scale
    factor = limit / np.maximum(norm, limit)
    for p in parameters:
        p.grad *= factor.astype(np.result_type(p.grad.dtype, np.float32))
    return norm / scale


def warmup_steps(steps, warmup):
    """The steps in which the rate rises, as a fraction `warmup` of all: at least one."""
    return max(1, round(warmup * steps))


def warmup_decay(step, steps, warmup=0.05, floor=0.05):
    """The factor on the learning rate at `step` of `steps`: up in a line, then down along a cosine to `floor`."""
    rise = warmup_steps(steps, warmup)
    if step < rise:
        return (step + 1) / rise
    return floor + (1 - floor) * 0.5 * (1 + np.cos(np.pi * (step - rise) / max(1, steps - rise)))
