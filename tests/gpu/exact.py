"""Every collective on arrays of the device is exact: the cases of tests/mpi/test_matrix.py.

All buffers hold old data before a kernel of the caller's writes the new one, so what is touched too early is wrong.
"""

import itertools
import random

import numpy as np
from forms import FORMS
from test_matrix import CASES, REDUCING

from mpicoll.arrays import DATATYPES, OPS, undefined

DTYPES = (
    "float32", "float64", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int32", "complex64", "bool",
)  # fmt: skip
OLD = 0xA5


def dtypes(run):
    names = {str(dtype): dtype for dtype in DATATYPES}
    return [names[name] for name in run.dtypes or DTYPES]


def on_device(maker, buffer, roots):
    """The array of the device for a NumPy array; views of one array are views of one array of the device, too.

    Args:
        roots: of what is owned by whom, by id: (array, what it holds at first, what it is to hold); they are added to.
    """
    root = buffer
    while isinstance(root.base, np.ndarray):
        root = root.base
    if id(root) not in roots:
        old = np.full(root.nbytes, OLD, np.uint8).view(root.dtype).reshape(root.shape)
        roots[id(root)] = maker.array(old), maker.array(old), maker.array(root)
    start = (buffer.ctypes.data - root.ctypes.data) // root.itemsize
    return roots[id(root)][0].reshape(-1)[start : start + buffer.size].reshape(buffer.shape)


def perform(comm, maker, seconds, form, name, *buffers, **arguments):
    """(result, what was passed) of a call; the buffers' content is written on the caller's stream after `seconds`."""
    roots = {}
    passed = [on_device(maker, b, roots) if isinstance(b, np.ndarray) else b for b in buffers]
    for i, buffer in enumerate(buffers):  # in place is said by passing the same array
        passed[i] = next(p for p, b in zip(passed, buffers, strict=True) if b is buffer)

    def fill():
        for array, old, _ in roots.values():
            maker.copy(array, old)
        maker.synchronise()
        if seconds:
            maker.spin(seconds)
        for array, _, content in roots.values():
            maker.copy(array, content)

    if form == "blocking":
        fill()
        return getattr(comm, name)(*passed, **arguments), passed
    if form == "nonblocking":
        fill()
        return getattr(comm, "i" + name)(*passed, **arguments).wait(), passed
    plan = getattr(comm, name + "_init")(*passed, **arguments)
    for _ in range(2):
        fill()
        plan.start()
        result = plan.wait()
    plan.free()
    return result, passed


def correct(run, seconds, form, cases, algorithm, dtype, op, number):
    """Nothing, if case `number` is right in this form, with data that comes after `seconds`.

    Raises:
        AssertionError: the result is wrong, or a buffer that is only to be read was written to.
    """
    buffers, arguments, written, want = next(itertools.islice(cases(run.comm, dtype, op), number, None))
    arguments = {"algorithm": algorithm, **arguments}
    where = (cases.__name__, run.way, form, dtype, op, arguments)
    result, passed = perform(run.comm, run.maker, seconds, form, cases.__name__, *buffers, **arguments)
    if want is None:
        assert result is None, where
        return
    got = run.maker.host(result)
    assert got.dtype == dtype, where
    assert (got.reshape(-1) == want.reshape(-1)).all(), (where, got, want)
    for i, buffer in enumerate(buffers):
        if isinstance(buffer, np.ndarray) and i not in written:
            assert (run.maker.host(passed[i]) == buffer).all(), (where, "a buffer to be read was written to")


def turns(items, numbers):
    """The calls that there are: first each item once, then again and again, in another form or another case."""
    for number in range(max(numbers.values())):
        for shift in range(len(FORMS)):
            for i, (cases, *item) in enumerate(items):
                if number < numbers[cases]:
                    yield FORMS[(i + shift) % len(FORMS)], cases, *item, number


def check(run):
    """Every collective x algorithm x dtype x operation has a turn at least, in some form; more while time lasts."""
    kinds = dict.fromkeys((cases, algorithm) for cases, algorithm, _ in CASES)
    items = [
        (cases, algorithm, dtype, op)
        for cases, algorithm in kinds
        for dtype in dtypes(run)
        for op in (OPS if cases in REDUCING else ("sum",))
        if cases not in REDUCING or not undefined(op, dtype)
    ]
    random.Random(1).shuffle(items)
    numbers = {cases: len(list(cases(run.comm, np.dtype("float32"), "sum"))) for cases, _ in kinds}
    delays, in_time, calls = random.Random(run.comm.rank), run.clock(), 0
    for turn in turns(items, numbers):
        if calls >= len(items) and not in_time():
            break
        correct(run, delays.uniform(0, 1e-3) if calls % 8 == 0 else 0, *turn)
        calls += 1
    everything = len(FORMS) * sum(numbers[cases] for cases, *_ in items)
    run.say("exact", calls=calls, of=everything, items=len(items), dtypes=[str(dtype) for dtype in dtypes(run)])
    run.say(
        "note", text=f"{calls:,} calls right, of {everything:,}; {len(items)} collectives x algorithms x dtypes x ops"
    )
