"""The hand-written backward agrees with finite differences, in float64."""

import numpy as np
import pytest
from finite_differences import check, differences

from mpicoll.training.layers import Embedding, Linear, ReLU
from mpicoll.training.losses import cross_entropy
from mpicoll.training.models import CharMLP, Sequential

RNG = np.random.default_rng(1)


def linear(inputs=4, outputs=3):
    return Linear("linear", RNG.standard_normal((inputs, outputs)), RNG.standard_normal(outputs))


def test_linear_agrees_with_finite_differences():
    check(linear(), RNG.standard_normal((5, 4)))


def test_relu_agrees_with_finite_differences():
    check(ReLU(), RNG.standard_normal((5, 4)))


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.int64])
def test_embedding_adds_up_repeated_indices(dtype):
    layer = Embedding("embedding", RNG.standard_normal((7, 3)))
    check(layer, np.array([[0, 2, 2, 6], [2, 0, 0, 2]], dtype), by_input=False)


def test_embedding_of_an_empty_batch_changes_nothing():
    layer = Embedding("embedding", np.ones((7, 3)))
    assert layer.forward(np.empty((0, 4), np.uint8)).shape == (0, 12)
    layer.backward(np.empty((0, 12)))
    assert not layer.table.grad.any()


def test_cross_entropy_agrees_with_finite_differences():
    logits, targets = RNG.standard_normal((5, 4)), np.array([0, 3, 1, 1, 2])
    before = logits.copy()
    losses, grad = cross_entropy(logits, targets, divisor=7)
    np.testing.assert_array_equal(logits, before)
    np.testing.assert_allclose(
        grad, differences(lambda: cross_entropy(logits, targets)[0].sum() / 7, logits), atol=1e-8
    )
    expected = -np.log((np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True))[np.arange(5), targets])
    np.testing.assert_allclose(losses, expected)


def test_cross_entropy_of_huge_logits_is_finite():
    losses, grad = cross_entropy(np.array([[1e4, 0.0], [-1e4, 0.0]], np.float32), np.array([0, 0]))
    np.testing.assert_allclose(losses, [0, 1e4])
    assert np.isfinite(grad).all()
    assert grad.dtype == np.float32


def test_model_agrees_with_finite_differences():
    model = CharMLP(vocabulary=5, context=3, embedding=2, hidden=4, layers=2, seed=3, dtype=np.float64)
    x, targets = RNG.integers(5, size=(6, 3)), RNG.integers(5, size=6)
    for p in model.parameters:
        p.data += 0.1 * RNG.standard_normal(p.data.shape)  # no ReLU at its kink
    model.backward(cross_entropy(model.forward(x), targets)[1])
    for p in model.parameters:
        numeric = differences(lambda: cross_entropy(model.forward(x), targets)[0].sum(), p.data)
        np.testing.assert_allclose(p.grad, numeric, rtol=1e-5, atol=1e-7, err_msg=p.name)


def test_backward_announces_every_layer_once_last_first_with_complete_gradients():
    model = Sequential([linear(4, 5), ReLU(), linear(5, 3)])
    seen = []
    model.forward(RNG.standard_normal((2, 4)))
    model.backward(np.ones((2, 3)), lambda layer: seen.append((layer, [p.grad.any() for p in layer.parameters])))
    assert [layer for layer, _ in seen] == model.layers[::-1]
    assert all(all(complete) for _, complete in seen)


def test_initial_weights_are_a_function_of_the_seed_and_float32_is_float64_rounded():
    shape = {"vocabulary": 5, "context": 3, "embedding": 2, "hidden": 4, "layers": 1}
    one, same, other = CharMLP(**shape, seed=1), CharMLP(**shape, seed=1), CharMLP(**shape, seed=2)
    double = CharMLP(**shape, seed=1, dtype=np.float64)
    for a, b, c, d in zip(one.parameters, same.parameters, other.parameters, double.parameters, strict=True):
        assert a.data.tobytes() == b.data.tobytes() == d.data.astype(np.float32).tobytes()
        assert a.name.endswith("bias") or (a.data != c.data).any()


class TransposedBackward(Linear):
    def backward(self, grad):
        super().backward(grad)
        return grad @ self.weight.data


class OverwritingBackward(Linear):
    def backward(self, grad):
        result = super().backward(grad)
        self.bias.grad[...] = grad.sum(axis=0)
        return result


class MeanBackward(Linear):
    def backward(self, grad):
        self.bias.grad += grad.mean(axis=0) - grad.sum(axis=0)
        return super().backward(grad)


@pytest.mark.parametrize("planted", [TransposedBackward, OverwritingBackward, MeanBackward])
def test_finite_differences_find_a_planted_bug(planted):
    layer = planted("planted", RNG.standard_normal((4, 4)), RNG.standard_normal(4))
    with pytest.raises(AssertionError):
        check(layer, RNG.standard_normal((5, 4)))
