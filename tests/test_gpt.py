"""The GPT's layers and their backward, against finite differences; what it may see, keep and announce."""

import math

import numpy as np
import pytest
from device_array import asarray
from finite_differences import check, differences

from mpicoll.training import recipes
from mpicoll.training.attention import CausalAttention
from mpicoll.training.gpt import GPT, TiedOutput, Tokens
from mpicoll.training.layers import GELU, LayerNorm, Linear, Residual
from mpicoll.training.losses import cross_entropy
from mpicoll.training.optimizers import SGD

RNG = np.random.default_rng(2)
SHAPE = {"vocabulary": 7, "context": 5, "width": 6, "layers": 2, "heads": 3}


def normal(*shape):
    return RNG.standard_normal(shape)


def gpt(dtype=np.float64, **changes):
    """A small GPT whose every parameter matters: none is zero, weights are large enough for attention to have a say."""
    model = GPT(**{**SHAPE, **changes}, seed=3, dtype=dtype)
    for p in model.parameters:
        p.data += 0.3 * RNG.standard_normal(p.data.shape)
    return model


def windows(samples=3, length=SHAPE["context"] + 1):
    return RNG.integers(SHAPE["vocabulary"], size=(samples, length))


def norm():
    layer = LayerNorm("norm", 6, np.float64)
    layer.gain.data += normal(6)
    layer.bias.data += normal(6)
    return layer


def linear(inputs=6, outputs=6):
    return Linear("linear", normal(inputs, outputs), normal(outputs))


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (GELU(), (3, 4)),
        (norm(), (2, 3, 6)),
        (linear(), (2, 3, 6)),
        (CausalAttention(1), (2, 4, 6)),
        (CausalAttention(2), (2, 3, 12)),
        (Residual(norm(), linear(6, 18), CausalAttention(3), linear()), (2, 3, 6)),
        (Residual(GELU()), (3, 4)),
        (TiedOutput(linear().weight), (2, 3, 6)),
    ],
    ids=lambda x: type(x).__name__ if hasattr(x, "parameters") else None,
)
def test_backward_agrees_with_finite_differences(layer, shape):
    check(layer, normal(*shape))


def test_gelu_is_half_of_what_tanh_says_and_huge_numbers_pass():
    x = np.array([-1e4, -1.0, 0.0, 1.0, 1e4])
    u = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    np.testing.assert_allclose(GELU().forward(x), x * (1 + np.tanh(u)) / 2, rtol=1e-15)


@pytest.mark.parametrize("length", [5, 2])
def test_tokens_add_up_repeated_indices(length):
    check(Tokens(normal(7, 6), normal(5, 6)), windows(length=length), by_input=False)


def test_the_tied_table_gets_the_gradient_of_both_its_uses():
    model, batch = gpt(), windows()
    for p in model.parameters:
        p.grad.fill(0)

    def loss():
        return cross_entropy(model.forward(batch[:, :-1]), batch[:, 1:])[0].sum()

    model.backward(cross_entropy(model.forward(batch[:, :-1]), batch[:, 1:])[1])
    for p in model.parameters:
        np.testing.assert_allclose(p.grad, differences(loss, p.data), rtol=1e-5, atol=1e-6, err_msg=p.name)


class Unscaled(CausalAttention):
    def backward(self, grad):
        keep, self.depth = self.depth, 1
        result = super().backward(grad)
        self.depth = keep
        return result


class Seeing(CausalAttention):
    def future(self, weights):
        return 0


class Uncentred(LayerNorm):
    def backward(self, grad):
        return super().backward(grad) + grad.mean(axis=-1, keepdims=True)


class Deaf(Residual):
    def backward(self, grad):
        return super().backward(grad) - grad


class Thief(GELU):
    def backward(self, grad):
        result = super().backward(grad)
        grad *= 1
        self.x *= 1.5
        return result


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (Unscaled(2), (2, 3, 12)),
        (Uncentred("norm", 6, np.float64), (3, 6)),
        (Deaf(linear()), (3, 6)),
        (Thief(), (3, 4)),
    ],
    ids=lambda x: type(x).__name__ if hasattr(x, "parameters") else None,
)
def test_the_check_finds_a_planted_bug(layer, shape):
    with pytest.raises(AssertionError):
        check(layer, normal(*shape))


def sees_the_future(attention):
    """Whether what comes after a position changes a bit of what it says."""
    x = normal(2, 5, 12)
    before = attention.forward(x).copy()
    x[:, 3:] = normal(2, 2, 12)
    after = attention.forward(x)
    assert (after[:, 3:] != before[:, 3:]).any()
    return bool((after[:, :3] != before[:, :3]).any())


def test_attention_does_not_see_the_future_and_one_that_does_is_found():
    assert not sees_the_future(CausalAttention(2))
    assert sees_the_future(Seeing(2))


def test_a_first_position_attends_to_itself_alone_and_huge_scores_are_finite():
    x = normal(2, 4, 12)
    x[..., :8] *= 1e4
    y = CausalAttention(2).forward(x)
    np.testing.assert_array_equal(y[:, 0], x[:, 0, 8:])
    assert np.isfinite(y).all()


def test_fewer_positions_give_the_beginning_of_the_same():
    model, batch = gpt(), windows()
    whole = model.forward(batch[:, :-1]).copy()
    np.testing.assert_allclose(model.forward(batch[:, :2]), whole[:, :2], rtol=1e-12)


def test_the_shared_table_is_announced_last_and_every_layer_once():
    model, seen, complete = gpt(), [], []
    batch = windows()

    def hook(layer):
        seen.append(layer)
        complete.extend((p, p.grad.copy()) for p in layer.parameters)

    model.backward(cross_entropy(model.forward(batch[:, :-1]), batch[:, 1:])[1], hook)
    announced = [inner for layer in model.layers for inner in layer.layers or [layer]]
    assert seen == announced[::-1]
    assert {p.name for p, _ in complete} == {p.name for p in model.parameters}
    assert len(complete) == len(model.parameters) == 4 + 12 * SHAPE["layers"]
    assert complete[-2][0].name == "tokens.table"
    for p, grad in complete:
        np.testing.assert_array_equal(p.grad, grad, err_msg=p.name)


def test_memory_is_that_of_the_formula_and_does_not_grow():
    batch, model = windows(samples=4), gpt(np.float32)
    for samples in (4, 4, 2):
        part = batch[:samples]
        model.backward(cross_entropy(model.forward(part[:, :-1]), part[:, 1:])[1])
        vocabulary, context, width, layers, heads = SHAPE.values()
        numbers = 4 * context * (width + layers * (30 * width + heads * context) + 2 * width + max(vocabulary, width))
        assert model.memory_bytes == 4 * numbers


def test_smaller_batches_between_larger_ones_change_nothing():
    model, fresh, batch = gpt(), gpt(), windows(samples=4)
    for p, q in zip(model.parameters, fresh.parameters, strict=True):
        q.data[...] = p.data
    for part in (batch[:1], batch, batch[2:], batch):
        model.forward(part[:, :-1])
    np.testing.assert_array_equal(model.forward(batch[:, :-1]), fresh.forward(batch[:, :-1]))


def test_gpt2_has_124_million_parameters():
    sizes = {name: recipes.RECIPES["gpt2"][name] for name in ("context", "width", "layers", "heads")}
    # its blocks are alike: one, and none, stand for all
    none, one = (
        sum(p.data.size for p in GPT(50257, **{**sizes, "layers": layers}, dtype=np.float16).parameters)
        for layers in (0, 1)
    )
    assert none + sizes["layers"] * (one - none) == 124_439_808


def test_initial_weights_are_a_function_of_seed_and_name_and_float32_is_float64_rounded():
    one, same, other = GPT(**SHAPE, seed=1), GPT(**SHAPE, seed=1), GPT(**SHAPE, seed=2)
    double, deeper = GPT(**SHAPE, seed=1, dtype=np.float64), GPT(**{**SHAPE, "context": 9}, seed=1)
    for a, b, c, d, e in zip(*(m.parameters for m in (one, same, other, double, deeper)), strict=True):
        assert a.data.tobytes() == b.data.tobytes() == d.data.astype(np.float32).tobytes()
        assert a.data.ndim == 1 or (a.data != c.data).any()
        assert a.name == "tokens.positions" or a.data.tobytes() == e.data.tobytes()
    weights = [p.data for p in one.parameters if p.data.ndim == 2]
    assert len({w.tobytes() for w in weights}) == len(weights)


def test_the_first_loss_is_that_of_uniform_guessing():
    batch = windows(samples=20)
    losses, _ = cross_entropy(GPT(**SHAPE).forward(batch[:, :-1]), batch[:, 1:])
    assert losses.shape == (20, SHAPE["context"])
    assert losses.mean() == pytest.approx(math.log(SHAPE["vocabulary"]), abs=0.05)


def test_heads_that_do_not_divide_the_width_are_named():
    with pytest.raises(ValueError, match="4 heads do not divide a width of 6; 4 would do"):
        GPT(**{**SHAPE, "heads": 4})


def learnt(place, dtype=np.float32, steps=4):
    """The parameters after some steps, the losses, and how often the host waited for a device."""
    model = GPT(**SHAPE, seed=4, dtype=dtype).to(place)
    optimizer, losses = SGD(model.parameters, lr=0.1), []
    batch = place(np.random.default_rng(5).integers(SHAPE["vocabulary"], size=(6, SHAPE["context"] + 1)))
    type(batch).host_waits = 0
    for _ in range(steps):
        optimizer.zero_grad()
        loss, grad = cross_entropy(model.forward(batch[:, :-1]), batch[:, 1:], divisor=30)
        model.backward(grad)
        optimizer.step()
        losses.append(loss.sum() / 30)
    return model, losses, type(batch).host_waits


def test_a_device_computes_the_same_and_is_never_waited_for():
    class Host(np.ndarray):
        """NumPy's, with room for the count."""

    host, losses, _ = learnt(lambda array: array.view(Host))
    device, others, waits = learnt(asarray)
    assert waits == 0
    np.testing.assert_allclose([float(loss) for loss in others], losses, rtol=1e-6)
    assert losses[-1] < losses[0]
    for p, q in zip(host.parameters, device.parameters, strict=True):
        np.testing.assert_allclose(q.data.get(), p.data, rtol=1e-4, atol=1e-6, err_msg=p.name)
