"""Random floats, NaN, infinities and signed zeros are reduced to the CPU's bits; where not, it is said how many.

Two differences are allowed: a NaN may be another NaN, and of two zeros of different sign max and min may take either.
Products and averages of complex numbers may be rounded otherwise (a GPU fuses multiplications and additions).
"""

import numpy as np
from exact import dtypes

from mpicoll.arrays import OPS, undefined

COUNT = 5000


def numbers(dtype, seed):
    """Random numbers of every size, among them all special ones."""
    rng = np.random.default_rng(seed)
    if dtype.itemsize == 1:
        return rng.integers(256, size=COUNT).astype(np.uint8).view(dtype)
    parts = np.dtype(dtype.type(0).real.dtype) if dtype.kind == "c" else dtype
    count = COUNT * dtype.itemsize // parts.itemsize
    words = rng.integers(256, size=count * parts.itemsize).astype(np.uint8).view(parts)  # all bits: NaNs, subnormals
    tame = rng.standard_normal(count).astype(parts)
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0]).astype(parts)[rng.integers(7, size=count)]
    return np.choose(rng.integers(4, size=count), [words, tame, tame, special]).view(dtype)


def differences(a, b):
    """{"nan", "zero", "value": in how many parts of numbers a and b differ in this way}."""
    if a.dtype.kind == "c":
        a, b = (x.view(x.real.dtype) for x in (a, b))
    size = a.dtype.itemsize
    other = (a.view(np.uint8).reshape(-1, size) != b.view(np.uint8).reshape(-1, size)).any(axis=1)
    nan, zero = np.isnan(a) & np.isnan(b), (a == 0) & (b == 0)
    found = {"nan": other & nan, "zero": other & zero, "value": other & ~nan & ~zero}
    return {name: int(where.sum()) for name, where in found.items()}


def check(run):
    comm, maker, wrong, seen = run.comm, run.maker, [], {"nan": 0, "zero": 0, "value": 0}
    with np.errstate(all="ignore"):
        for dtype in dtypes(run):
            if dtype.kind in "iub":
                continue
            x = numbers(dtype, seed=comm.rank)
            for op in OPS:
                if undefined(op, dtype):
                    continue
                for algorithm in ("ring", "recursive_doubling"):
                    on_host = comm.allreduce(x, op=op, algorithm=algorithm)
                    on_device = maker.host(comm.allreduce(maker.array(x), op=op, algorithm=algorithm))
                    everyone = run.world.allgather(on_device.tobytes())
                    assert len(set(everyone)) == 1, f"{dtype} {op} {algorithm}: the ranks have different bits"
                    found = differences(on_host, on_device)
                    run.say("bits", dtype=str(dtype), op=op, algorithm=algorithm, count=COUNT, **found)
                    seen = {name: seen[name] + found[name] for name in seen}
                    allowed = dtype.kind == "c" and op in ("prod", "avg")
                    if (found["value"] and not allowed) or (found["zero"] and op not in ("max", "min")):
                        wrong.append((str(dtype), op, algorithm, found))
    run.say("note", text="other than the CPU's: {nan} NaNs, {zero} signs of zeros, {value} values".format(**seen))
    assert not wrong, wrong
