"""Losses: the value per sample and the gradient, both in one pass."""

import numpy as np


def cross_entropy(logits, targets, divisor=1):
    """The cross-entropy of every sample in nats, and the gradient by the logits of their sum / divisor.

    Args:
        logits: (batch, classes), not modified.
        targets: (batch,) integers in [0, classes).
        divisor: what the sum of the losses is divided by, so that micro-batches and ranks add up to one mean: with the
            samples of this rank in the global batch here and "avg" over ranks, the result is the global mean.

    Returns:
        (losses, grad): float64 (batch,), and an array like logits.
    """
    rows = np.arange(len(targets), like=targets)
    grad = logits - logits.max(axis=1, keepdims=True)  # exp cannot overflow
    picked = grad[rows, targets].astype(np.float64)
    np.exp(grad, out=grad)
    total = grad.sum(axis=1)
    losses = np.log(total.astype(np.float64)) - picked
    grad /= (total * divisor)[:, None]
    grad[rows, targets] -= 1 / divisor
    return losses, grad
