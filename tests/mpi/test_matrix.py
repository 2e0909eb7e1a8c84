"""Every collective x algorithm x form x dtype x op x way of passing buffers x count x root, against NumPy, exact."""

import functools

import numpy as np
import pytest
from forms import FORMS, perform
from ml_dtypes import bfloat16, float8_e4m3fn, float8_e5m2

from mpicoll.algorithms.cut import even
from mpicoll.arrays import DATATYPES, OPS, undefined
from mpicoll.selection import family

pytestmark = pytest.mark.mpi

FLOAT8 = [np.dtype(float8_e4m3fn), np.dtype(float8_e5m2)]
# What a type needs is the same for any number of ranks; so few of them where ranks are more than cores usually.
FEW = ("float32", "complex128")
UFUNCS = {"sum": np.add, "avg": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}


def counts_for(size):
    """Few where ranks are more than cores usually: the world proves all of them."""
    return sorted({0, 1, size - 1, size + 1, 37}) if size < 5 else [0, size - 1, size + 1]


def roots_for(size):
    return sorted({0, size // 2, size - 1} if size < 5 else {0, size // 2})


def values(size, count, dtype, op):
    """One row for each rank, such that the reduction is exact in any order, in every dtype."""
    n = np.arange(size * count).reshape(size, count)
    if dtype in FLOAT8:  # e5m2 knows the integers up to 8, and few above
        ones = n % 5 % 2 if op != "avg" else np.broadcast_to(n[0] % 2, n.shape)
        return (ones + (op == "prod")).astype(dtype)
    if op == "prod":
        powers = 1 + (n * 7 + n // 3) % 2
        return (powers * np.array([1, 1j, -1, -1j])[n % 4] if dtype.kind == "c" else powers).astype(dtype)
    small = (n * 5 + n // 7) % 4
    if op == "avg":
        small = small * size
    if dtype.kind == "c":
        small = small + 1j * small[::-1]
    if dtype.kind == "b":
        small = small == 0
    return small.astype(dtype)


def reduced(data, op):
    total = functools.reduce(UFUNCS[op], data)
    return (total / len(data)).astype(data.dtype) if op == "avg" else total


# Each of these yields, for one dtype and op: what to pass (buffers, arguments), which of the passed arrays may change,
# and the result, None where there is none.


def allreduce(comm, dtype, op):
    for count in counts_for(comm.size):
        data = values(comm.size, count, dtype, op)
        want, own = reduced(data, op), data[comm.rank]
        x, y = own.copy(), own.copy()
        yield (x, None), {"op": op}, (), want
        yield (x, np.empty_like(x)), {"op": op}, (1,), want
        yield (y, y), {"op": op}, (0, 1), want


def reduce(comm, dtype, op):
    for root in roots_for(comm.size):
        for count in counts_for(comm.size):
            data = values(comm.size, count, dtype, op)
            want, own = reduced(data, op), data[comm.rank]
            x, y = own.copy(), own.copy()
            arguments = {"op": op, "root": root}
            if comm.rank == root:
                yield (x, None), arguments, (), want
                yield (x, np.empty_like(x)), arguments, (1,), want
                yield (y, y), arguments, (0, 1), want
            else:
                yield (x, None), arguments, (), None
                yield (x, None), arguments, (), None
                yield (y, None), arguments, (), None


def broadcast(comm, dtype, op):
    for root in roots_for(comm.size):
        for count in counts_for(comm.size):
            data = values(comm.size, count, dtype, op)
            yield (data[comm.rank].copy(),), {"root": root}, (0,), data[root]


def cuts(size):
    """Counts of rows for each rank, and whether to pass them."""
    return [((2,) * size, False), ((0,) * size, False), (even(size + 1, size), True), (even(3, size), True)]


def reduce_scatter(comm, dtype, op):
    rank = comm.rank
    for rows, passed in cuts(comm.size):
        data = values(comm.size, 3 * sum(rows), dtype, op).reshape(comm.size, sum(rows), 3)
        start = sum(rows[:rank])
        own = slice(start, start + rows[rank])
        want = reduced(data, op)[own]
        x, y = data[rank].copy(), data[rank].copy()
        arguments = {"op": op, "counts": rows if passed else None}
        yield (x, None), arguments, (), want
        yield (x, np.empty_like(want)), arguments, (1,), want
        yield (y, y[own]), arguments, (0, 1), want


def allgather(comm, dtype, op):
    rank = comm.rank
    for rows, passed in cuts(comm.size):
        data = values(1, 3 * sum(rows), dtype, op).reshape(sum(rows), 3)
        start = sum(rows[:rank])
        own = slice(start, start + rows[rank])
        whole = np.zeros_like(data)
        whole[own] = data[own]
        arguments = {"counts": rows if passed else None}
        yield (data[own].copy(), None), arguments, (), data
        yield (data[own].copy(), np.empty_like(data)), arguments, (1,), data
        yield (whole[own], whole), arguments, (0, 1), data


def alltoall(comm, dtype, op):
    for rows in (0, 1, 5):
        data = values(comm.size, comm.size * rows, dtype, op).reshape(comm.size, comm.size, rows)
        x = data[comm.rank].copy()
        yield (x, None), {}, (), data[:, comm.rank]
        yield (x, np.empty_like(x)), {}, (1,), data[:, comm.rank]


def alltoallv(comm, dtype, op):
    size, rank = comm.size, comm.rank
    for step in (0, 1, 3):
        counts = np.array([[(i * step + j) % 4 for j in range(size)] for i in range(size)])  # from i to j
        rows = int(counts.sum(1).max())
        data = values(size, 2 * rows, dtype, op).reshape(size, rows, 2)
        parts = [np.split(data[i, : counts[i].sum()], np.cumsum(counts[i])[:-1]) for i in range(size)]
        want = np.concatenate([parts[i][rank] for i in range(size)])
        x = data[rank, : counts[rank].sum()].copy()
        yield (x, list(counts[rank]), None, list(counts[:, rank])), {}, (), want
        yield (x, list(counts[rank]), np.empty_like(want), list(counts[:, rank])), {}, (2,), want


def gather(comm, dtype, op):
    for root in roots_for(comm.size):
        for rows in (0, 1, 5):
            data = values(comm.size, rows, dtype, op)
            want = data.reshape(-1) if comm.rank == root else None
            yield (data[comm.rank].copy(), None), {"root": root}, (), want
            fresh = None if want is None else np.empty_like(want)
            yield (data[comm.rank].copy(), fresh), {"root": root}, (1,), want
            whole = np.zeros_like(data)
            whole[comm.rank] = data[comm.rank]
            passed = (whole[comm.rank], whole) if comm.rank == root else (data[comm.rank].copy(), None)
            yield passed, {"root": root}, (0, 1) if comm.rank == root else (), None if want is None else data


def scatter(comm, dtype, op):
    for root in roots_for(comm.size):
        for rows in (0, 1, 5):
            data = values(comm.size, rows, dtype, op)
            at_root = comm.rank == root
            x = data.copy() if at_root else None
            yield (x, np.empty(rows, dtype)), {"root": root}, (1,), data[comm.rank]
            y = data.copy() if at_root else None
            yield (y, y[root] if at_root else np.empty(rows, dtype)), {"root": root}, (0, 1), data[comm.rank]


REDUCING = (allreduce, reduce, reduce_scatter)
CASES = [
    (cases, algorithm, form)
    for cases in (*REDUCING, broadcast, allgather, alltoall, alltoallv, gather, scatter)
    for algorithm in (None, *family(cases.__name__))
    for form in FORMS
]


def some():
    """The CASES: on two and three ranks every algorithm in every form, on others in one of them."""
    for turn, case in enumerate(CASES):
        seldom = turn // len(FORMS) % len(FORMS) != FORMS.index(case[2])
        yield pytest.param(*case, marks=[pytest.mark.ranks((2, 3))] * seldom)


@pytest.mark.parametrize(("cases", "algorithm", "form"), list(some()), ids=lambda x: getattr(x, "__name__", str(x)))
def test_the_result_is_that_of_numpy(comm, cases, algorithm, form, combinations):
    turn = CASES.index((cases, algorithm, form))
    types = list(DATATYPES) if comm.size <= 3 else FEW
    if comm.size == 2 and algorithm not in (None, "ring"):
        types = types[turn % len(FORMS) :: len(FORMS)]  # every type meets every algorithm, each in one form
    elif comm.size == 3:
        types = types[turn % 7 :: 7]  # every type meets every collective
    for dtype in map(np.dtype, types):
        for op in OPS if cases in REDUCING else ("sum",):
            if cases in REDUCING and undefined(op, dtype):
                continue
            for buffers, arguments, written, want in cases(comm, dtype, op):
                combinations.append(1)
                before = [buffer.copy() if isinstance(buffer, np.ndarray) else buffer for buffer in buffers]
                result = perform(comm, form, cases.__name__, *buffers, algorithm=algorithm, **arguments)
                where = (dtype, op, arguments, [getattr(buffer, "shape", buffer) for buffer in buffers])
                if want is None:
                    assert result is None, where
                    continue
                assert result.dtype == dtype, where
                assert result.shape == want.shape or cases is gather, where
                assert (result.reshape(-1) == want.reshape(-1)).all(), (where, result, want)
                for i, buffer in enumerate(buffers):
                    if isinstance(buffer, np.ndarray) and i not in written:
                        assert (buffer == before[i]).all(), (where, "a buffer that is only to be read was written to")


def test_the_matrix_has_every_type_of_numpy():
    names = {np.dtype(code) for code in np.typecodes["AllInteger"] + np.typecodes["AllFloat"]} | {np.dtype("bool")}
    assert set(DATATYPES) == names | {np.dtype(bfloat16), *FLOAT8}
