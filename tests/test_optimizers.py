"""Optimizers compute what their papers say, in place, and descend."""

import itertools

import numpy as np
import pytest

from mpicoll.training.layers import Parameter
from mpicoll.training.optimizers import SGD, AdamW, clip, warmup_decay


def parameters():
    rng = np.random.default_rng(5)
    return [Parameter("matrix", rng.standard_normal((3, 2))), Parameter("bias", rng.standard_normal(4))]


def gradients(steps):
    rng = np.random.default_rng(6)
    return [[rng.standard_normal((3, 2)), rng.standard_normal(4)] for _ in range(steps)]


def run(optimizer, steps):
    for grads in gradients(steps):
        for p, g in zip(optimizer.parameters, grads, strict=True):
            p.grad[...] = g
        optimizer.step()


def test_sgd_is_the_textbook_recurrence():
    ours, expected = parameters(), [p.data.copy() for p in parameters()]
    run(SGD(ours, lr=0.1, momentum=0.8), steps=5)
    velocity = [np.zeros_like(x) for x in expected]
    for grads in gradients(5):
        for i, g in enumerate(grads):
            velocity[i] = 0.8 * velocity[i] + g
            expected[i] = expected[i] - 0.1 * velocity[i]
    for p, x in zip(ours, expected, strict=True):
        np.testing.assert_allclose(p.data, x, rtol=1e-13)


def adamw(x, grads, lr, betas, epsilon, decay):
    """Algorithm 2 of Loshchilov and Hutter, line by line."""
    m, v = np.zeros_like(x), np.zeros_like(x)
    for t, g in enumerate(grads, 1):
        m = betas[0] * m + (1 - betas[0]) * g
        v = betas[1] * v + (1 - betas[1]) * g * g
        m_hat, v_hat = m / (1 - betas[0] ** t), v / (1 - betas[1] ** t)
        x = x - lr * (m_hat / (np.sqrt(v_hat) + epsilon) + decay * x)
    return x


def check_adamw(make):
    """Five steps give what the paper's algorithm gives; biases do not decay."""
    ours, start = parameters(), parameters()
    run(make(ours, lr=0.01, betas=(0.9, 0.95), epsilon=1e-3, weight_decay=0.5), steps=5)
    for i, (p, decay) in enumerate(zip(ours, (0.5, 0.0), strict=True)):
        expected = adamw(start[i].data, [g[i] for g in gradients(5)], 0.01, (0.9, 0.95), 1e-3, decay)
        np.testing.assert_allclose(p.data, expected, rtol=1e-12)


def test_adamw_is_the_papers_algorithm_and_biases_do_not_decay():
    check_adamw(AdamW)


def test_the_check_finds_a_missing_bias_correction():
    class Uncorrected(AdamW):
        def step(self):
            self.steps = 10**9
            super().step()

    with pytest.raises(AssertionError):
        check_adamw(Uncorrected)


@pytest.mark.parametrize("make", [SGD, AdamW])
def test_steps_are_in_place_read_gradients_only_and_keep_the_dtype(make):
    ps = [Parameter("single", np.ones((2, 3), np.float32)), Parameter("double", np.ones(5))]
    arrays = [(p.data, p.grad) for p in ps]
    for p in ps:
        p.grad.fill(0.25)
    make(ps, lr=0.1).step()
    for p, (data, grad) in zip(ps, arrays, strict=True):
        assert p.data is data
        assert p.grad is grad
        assert (grad == 0.25).all()
        assert (data < 1).all()
        assert data.dtype == grad.dtype


@pytest.mark.parametrize(("make", "lr"), [(SGD, 0.02), (AdamW, 0.05)])
def test_a_quadratic_is_minimised(make, lr):
    p = Parameter("x", np.array([3.0, -2.0]))
    optimizer = make([p], lr)
    for _ in range(300):
        optimizer.zero_grad()
        p.grad += 2 * p.data
        optimizer.step()
    assert np.abs(p.data).max() < 0.05


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_clip_scales_all_gradients_alike_and_only_above_the_limit(dtype):
    ps = [Parameter("single", np.ones((1, 2), dtype)), Parameter("other", np.ones(1, dtype))]
    ps[0].grad += [[2, 3]]
    ps[1].grad += 6
    arrays = [p.grad for p in ps]
    for limit, expected in ((8, (2, 3, 6)), (7, (2, 3, 6)), (3.5, (1, 1.5, 3))):
        assert clip(ps, limit) == 7
        assert (*ps[0].grad[0], *ps[1].grad) == expected
    assert all(p.grad is array for p, array in zip(ps, arrays, strict=True))


def test_clip_leaves_zeros_and_squares_that_overflow_do_not():
    zero, huge = Parameter("zero", np.ones(2, np.float32)), Parameter("huge", np.ones(2))
    assert clip([zero], 1.0) == 0
    assert not zero.grad.any()
    huge.grad += 1e100
    clip([huge], 1.0)
    np.testing.assert_allclose(huge.grad, 0.5**0.5)


def test_no_parameters_is_no_error():
    AdamW([], lr=1.0).step()


def test_the_schedule_rises_to_one_and_decays_to_its_floor():
    factors = [warmup_decay(step, 100, warmup=0.1, floor=0.2) for step in range(100)]
    assert factors[:10] == pytest.approx([(i + 1) / 10 for i in range(10)])
    assert max(factors) == 1
    assert all(a >= b for a, b in itertools.pairwise(factors[10:]))
    assert factors[-1] == pytest.approx(0.2, abs=1e-3)
    assert warmup_decay(0, 1) == 1
