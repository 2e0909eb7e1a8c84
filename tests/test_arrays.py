"""What the kinds of arrays share."""

import numpy as np
import pytest

from mpicoll.arrays import FLOAT8, OPS, NumPyArrays, pairs, quotients


@pytest.mark.parametrize("dtype", FLOAT8)
@pytest.mark.parametrize("op", OPS)
def test_the_table_of_pairs_has_the_bits_of_the_cpu(dtype, op):
    codes = np.arange(256, dtype=np.uint8)
    a, b = (codes_.reshape(-1).view(dtype) for codes_ in map(np.ascontiguousarray, np.meshgrid(codes, codes)))
    out = np.empty_like(a)
    NumPyArrays.reduction(op)(out, a, b)
    table = pairs(op, dtype)
    assert (table[256 * a.view(np.uint8).astype(int) + b.view(np.uint8)] == out.view(np.uint8)).all()


@pytest.mark.parametrize("dtype", FLOAT8)
def test_the_table_of_quotients_has_the_bits_of_the_cpu(dtype):
    for size in (1, 2, 3, 8, 100):
        out = np.arange(256, dtype=np.uint8).view(dtype)
        NumPyArrays.finishing("avg", size)(out)
        assert (quotients(size, dtype) == out.view(np.uint8)).all()


@pytest.mark.parametrize("dtype", ["complex64", "complex128", "clongdouble"])
def test_an_average_of_complex_numbers_is_rounded_once(dtype):
    rng = np.random.default_rng(0)
    for size in (3, 6, 7):
        x = (rng.standard_normal(1000) + 1j * rng.standard_normal(1000)).astype(dtype)
        x[0] = complex(1, np.inf)
        out = x.copy()
        NumPyArrays.finishing("avg", size)(out)
        assert (out.real == x.real / size).all()
        assert (out.imag == x.imag / size).all()
