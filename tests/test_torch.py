"""The GPT and its optimizer against PyTorch's automatic differentiation and AdamW, in float32."""

import numpy as np
import pytest

from mpicoll.training.gpt import GPT
from mpicoll.training.losses import cross_entropy
from mpicoll.training.optimizers import AdamW, clip

torch = pytest.importorskip("torch")
F = torch.nn.functional

SHAPE = {"vocabulary": 31, "context": 16, "width": 32, "layers": 3, "heads": 4}
SAMPLES, STEPS = 8, 20
RNG = np.random.default_rng(7)


def torch_loss(weights, x, targets):
    """The mean cross-entropy of the same network in PyTorch's own functions; weights by the names of ours."""
    width = SHAPE["width"]

    def linear(y, name):
        return y @ weights[f"{name}.weight"] + weights[f"{name}.bias"]

    def norm(y, name):
        return F.layer_norm(y, (width,), weights[f"{name}.gain"], weights[f"{name}.bias"], eps=1e-5)

    def heads(y):
        return y.reshape(*y.shape[:2], SHAPE["heads"], -1).transpose(1, 2)

    y = weights["tokens.table"][x] + weights["tokens.positions"][: x.shape[1]]
    for i in range(SHAPE["layers"]):
        q, k, v = linear(norm(y, f"block{i}.norm1"), f"block{i}.attention").split(width, dim=-1)
        a = F.scaled_dot_product_attention(heads(q), heads(k), heads(v), is_causal=True)
        y = y + linear(a.transpose(1, 2).reshape(y.shape), f"block{i}.projection")
        up = F.gelu(linear(norm(y, f"block{i}.norm2"), f"block{i}.up"), approximate="tanh")
        y = y + linear(up, f"block{i}.down")
    logits = norm(y, "norm") @ weights["tokens.table"].T
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def pair():
    """Our model with weights of some size, and PyTorch's copy of them."""
    model = GPT(**SHAPE, seed=1)
    for p in model.parameters:
        p.data += (0.1 * RNG.standard_normal(p.data.shape)).astype(np.float32)
    return model, {p.name: torch.tensor(p.data, requires_grad=True) for p in model.parameters}


def batches(steps):
    return RNG.integers(SHAPE["vocabulary"], size=(steps, SAMPLES, SHAPE["context"] + 1))


def backward(model, batch):
    """Our mean loss; the gradients have been added up."""
    losses, grad = cross_entropy(model.forward(batch[:, :-1]), batch[:, 1:], divisor=batch[:, 1:].size)
    model.backward(grad)
    return losses.mean()


def check_gradients(model, weights, batch):
    """Loss and gradients are PyTorch's to 1e-5, of each parameter relative to the norm of its gradient."""
    loss = backward(model, batch)
    theirs = torch_loss(weights, *map(torch.tensor, (batch[:, :-1], batch[:, 1:])))
    theirs.backward()
    assert loss == pytest.approx(float(theirs.detach()), rel=1e-5)
    for p in model.parameters:
        expected = weights[p.name].grad.numpy()
        assert np.linalg.norm(p.grad - expected) <= 1e-5 * np.linalg.norm(expected), p.name


def test_gradients_are_pytorchs():
    check_gradients(*pair(), batches(1)[0])


def test_the_comparison_finds_one_wrong_parameter():
    model, weights = pair()
    next(p for p in model.parameters if p.name == "block1.up.bias").grad[3] += 1e-3
    with pytest.raises(AssertionError, match=r"block1\.up\.bias"):
        check_gradients(model, weights, batches(1)[0])


def losses_of_both(ours_decay=0.1, limit=0.5):
    """(losses, norms of the gradients) of STEPS steps of AdamW with clipping: ours, PyTorch's; each (2, STEPS)."""
    model, weights = pair()
    optimizer = AdamW(model.parameters, 3e-3, betas=(0.9, 0.95), weight_decay=ours_decay)
    groups = [
        {"params": [w for w in weights.values() if w.ndim > 1], "weight_decay": 0.1},
        {"params": [w for w in weights.values() if w.ndim == 1], "weight_decay": 0.0},
    ]
    other, ours, theirs = torch.optim.AdamW(groups, 3e-3, betas=(0.9, 0.95), eps=1e-8), [], []
    for batch in batches(STEPS):
        optimizer.zero_grad()
        ours.append((backward(model, batch), clip(model.parameters, limit)))
        optimizer.step()
        other.zero_grad()
        loss = torch_loss(weights, *map(torch.tensor, (batch[:, :-1], batch[:, 1:])))
        loss.backward()
        theirs.append((float(loss.detach()), float(torch.nn.utils.clip_grad_norm_(list(weights.values()), limit))))
        other.step()
    return np.transpose(ours), np.transpose(theirs)


def test_twenty_steps_of_adamw_give_pytorchs_losses():
    (losses, norms), (expected, expected_norms) = losses_of_both()
    assert losses[-1] < losses[0]
    assert norms.max() > 0.5  # some were clipped
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    np.testing.assert_allclose(norms, expected_norms, rtol=1e-3)


def test_the_losses_tell_another_weight_decay():
    (losses, _), (expected, _) = losses_of_both(ours_decay=0.0)
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(losses, expected, rtol=1e-5)
