"""Gradients of float16 are those of the loss times a factor, since small ones would vanish (Micikevicius et al. 2018).

The factor is as large as the gradients allow: it doubles after many good steps, as in PyTorch; where a gradient is not
finite, no step is made and it is halved. It is a power of two, so nothing is rounded by it.
"""

import numpy as np


class LossScaled:
    """`optimizer`, whose gradients are those of the loss times `scale`: it skips the steps where they are not finite.

    Every rank decides alike without asking the others: the averaged gradients have the same bits everywhere. On a
    device, the host waits for them once per step.

    Attributes:
        scale: what the loss of the next step is to be multiplied by.
        skipped: steps in which nothing moved.
        good: steps since the scale changed.
        lr: of the next step.
        replicated: as the optimizer's.

    Args:
        scale: at first.
        patience: good steps after which it is doubled.
    """

    def __init__(self, optimizer, scale=2.0**16, patience=2000):
        self.optimizer, self.scale, self.patience, self.lr = optimizer, scale, patience, optimizer.lr
        self.parameters, self.zero_grad = optimizer.parameters, optimizer.zero_grad
        self.replicated = optimizer.replicated
        self.skipped = self.good = 0

    def step(self):
        """The parameters have moved by one step, or, with gradients that are not finite, have not.

        Raises:
            FloatingPointError: the gradients are not finite, though the scale is 1 already.
        """
        if all(np.isfinite(p.grad).all() for p in self.parameters):
            self.optimizer.lr, self.optimizer.scale = self.lr, self.scale
            self.optimizer.step()
            self.good += 1
            if self.good == self.patience:
                self.scale, self.good = self.scale * 2, 0
            return
        if self.scale <= 1:
            raise FloatingPointError(
                "gradients of float16 are not finite, even of the loss as it is; bfloat16 has more range: "
                "--precision mixed; or try a lower --lr"
            )
        self.skipped += 1
        self.scale, self.good = self.scale / 2, 0

    def state(self):
        """name → array of all that the next step depends on, see `optimizers`."""
        return {**self.optimizer.state(), "scale": np.array([self.scale, self.good, self.skipped])}

    def restore(self, state):
        """What `state` gives has these values, from arrays on the host."""
        self.optimizer.restore(state)
        self.scale, self.good, self.skipped = float(state["scale"][0]), int(state["scale"][1]), int(state["scale"][2])

    def report(self):
        """What the record of a step says: the scale of the next step, and the steps skipped so far."""
        return {"loss_scale": self.scale, "skipped_steps": self.skipped}
