"""Losses: the value per prediction and the gradient, both in one pass."""

import numpy as np

from .layers import ones


def cross_entropy(logits, targets, divisor=1):
    """The cross-entropy of every prediction in nats, and the gradient by the logits of their sum / divisor.

    Args:
        logits: (..., classes), not modified.
        targets: (...) integers in [0, classes).
        divisor: what the sum of the losses is divided by, so that micro-batches and ranks add up to one mean: with the
            predictions of this rank in the global batch here and "avg" over ranks, the result is the global mean.

    Returns:
        (losses, grad): float64 like targets, and an array like logits.
    """
    flat, picks = logits.reshape(-1, logits.shape[-1]), targets.reshape(-1)
    rows = np.arange(len(picks), like=picks)
    grad = flat - flat.max(axis=1, keepdims=True)  # exp cannot overflow
    picked = grad[rows, picks].astype(np.float64)
    np.exp(grad, out=grad)
    total = grad @ ones(grad, grad.shape[1])
    losses = np.log(total.astype(np.float64)) - picked
    grad /= (total * divisor)[:, None]
    grad[rows, picks] -= 1 / divisor
    return losses.reshape(targets.shape), grad.reshape(logits.shape)
