"""The gradient of anything, by central differences, to compare a layer's backward with. In float64."""

import numpy as np

RNG = np.random.default_rng(1)
STEP = 1e-6


def differences(value, array):
    """The gradient of value() by `array`."""
    gradient = np.empty_like(array)
    for i in np.ndindex(array.shape):
        keep = array[i]
        array[i] = keep + STEP
        above = value()
        array[i] = keep - STEP
        gradient[i] = (above - value()) / (2 * STEP)
        array[i] = keep
    return gradient


def check(layer, x, by_input=True):
    """The layer's gradients by its input and parameters are those of sum(weight * output); it changes neither x nor the
    gradient that it is given."""
    weight, given = RNG.standard_normal(layer.forward(x).shape), x.copy()

    def value():
        return float((weight * layer.forward(x)).sum())

    for p in layer.parameters:
        p.grad.fill(1.0)  # layers add, they do not overwrite
    layer.forward(x)
    passed = weight.copy()
    grad = layer.backward(passed)
    grad = grad.copy() if by_input else grad  # the layer's memory, which value() overwrites
    np.testing.assert_array_equal(x, given)
    np.testing.assert_array_equal(passed, weight)
    for p in layer.parameters:
        np.testing.assert_allclose(p.grad - 1.0, differences(value, p.data), rtol=1e-6, atol=1e-6, err_msg=p.name)
    if by_input:
        np.testing.assert_allclose(grad, differences(value, x), rtol=1e-6, atol=1e-6)
