"""Whatever is passed, a call works or says what is wrong, on every rank, and the communicator goes on."""

import random

import numpy as np
import pytest
from mpi4py import MPI

pytestmark = pytest.mark.mpi

ARRAYS = [
    lambda n: np.ones(n, "float32"),
    lambda n: np.ones(n),
    lambda n: np.ones((n, 2), "int16"),
    lambda n: np.ones((2 * n, 0), "float16"),
    lambda n: np.ones(n, bool),
    lambda n: np.ones(n, "complex64"),
    lambda n: np.ones((n, 4))[:, ::2],
    lambda n: np.ones(n, "S3"),
    lambda n: np.ones(n, object),
    lambda n: np.ones(n, "datetime64[s]"),
    lambda n: np.ones(n, ">i4"),
    lambda n: np.ones(n, [("a", "i4"), ("b", "f4")]),
    lambda n: np.broadcast_to(np.ones(1), (n,)),
    lambda n: np.array(1.0),
    lambda n: np.ones(n).view(np.recarray),
    lambda n: np.ma.ones(n),
    lambda n: [1.0] * n,
    lambda n: bytearray(8 * n),
    lambda n: memoryview(bytearray(8)),
    lambda n: None,
    lambda n: 3.5,
    lambda n: "abc",
    lambda n: np.float32(2),
    lambda n: {},
    lambda n: type,
]
OPS = [
    "sum",
    "prod",
    "max",
    "min",
    "avg",
    MPI.SUM,
    MPI.MAX,
    MPI.BXOR,
    "SUM",
    "",
    None,
    0,
    ["sum"],
    np.add,
    b"sum",
    {},
    np.array([1, 2]),
]
ALGORITHMS = [
    None,
    None,
    None,
    "ring",
    "tree",
    "linear",
    "pairwise",
    "exchange",
    "recursive_doubling",
    "Ring",
    "",
    1,
    [],
    {},
]
ROOTS = [0, 0, np.int64(0), True, -1, 10**6, 0.0, "0", None, [], np.array(0), np.array([0, 0])]
COUNTS = [None, None, [1], [], "11", 3, [-1], [0.5], [None], [10**9], np.array([2, 2]), {}, (1, 1, 1)]


def some_arrays(generator, size):
    """Two arrays that go together more often than not; always allocated here, never shared between calls."""
    first = generator.choice(ARRAYS)
    n = generator.choice([0, 1, size, size + 1, 3 * size])
    second = first if generator.random() < 0.7 else generator.choice(ARRAYS)
    m = n if generator.random() < 0.7 else generator.choice([0, 1, size * n, 7])
    return first(n), second(m)


def some_calls(generator, size):
    """An endless stream of (name, arguments); the same on all ranks."""
    while True:
        x, y = some_arrays(generator, size)
        y = generator.choice([None, x, y])
        op, algorithm = generator.choice(OPS), generator.choice(ALGORITHMS)
        root, counts = generator.choice(ROOTS), generator.choice([*COUNTS, [1] * size, [2] * size])
        yield generator.choice(
            [
                ("broadcast", (x, root, algorithm)),
                ("reduce", (x, None, op, root, algorithm)),
                ("allreduce", (x, y, op, algorithm)),
                ("reduce_scatter", (x, y, op, counts, algorithm)),
                ("allgather", (x, y, counts, algorithm)),
                ("alltoall", (x, y, algorithm)),
                ("alltoallv", (x, counts, y, counts, algorithm)),
                ("gather", (x, None, root, algorithm)),
                ("scatter", (None, y, root, algorithm)),
                ("barrier", (algorithm,)),
                ("send", (x, root)),
                ("recv", (x, root)),
                ("sendrecv", (x, root, y, root)),
            ]
        )


def attempt(comm, name, arguments, form):
    """Whether the call ended well; what it says otherwise names it."""
    try:
        if form == "":
            getattr(comm, name)(*arguments)
        elif form == "i":
            getattr(comm, "i" + name)(*arguments).wait()
        else:
            plan = getattr(comm, name + "_init")(*arguments)
            plan.start()
            plan.wait()
            plan.free()
    except (TypeError, ValueError) as refused:
        told = str(refused)
    else:
        return True
    assert told.startswith(f"{name}: "), (name, arguments, told)
    return False


def can_be_met(name, arguments, size):
    """Whether all ranks may make this call: a message to rank 0 needs its counterpart, a scatter its source.

    A read-only array can be broadcast from the root, but not received.
    """
    if name == "broadcast" and isinstance(arguments[0], np.ndarray) and not arguments[0].flags.writeable:
        return False
    if name in ("send", "recv", "sendrecv"):
        return size == 1 and name == "sendrecv"
    return name != "scatter"


@pytest.mark.parametrize("seed", range(10))
def test_whatever_is_passed_works_or_is_refused_with_a_message(comm, seed):
    generator = random.Random(seed)
    calls = some_calls(generator, comm.size)
    ended = refused = 0
    for _ in range(300):
        name, arguments = next(calls)
        form = generator.choice(["", "i", "init"] if name not in ("send", "recv", "sendrecv") else ["", "i"])
        if not can_be_met(name, arguments, comm.size):
            continue
        sent = comm.bytes_sent
        if attempt(comm, name, arguments, form):
            ended += 1
        else:
            refused += 1
            assert comm.bytes_sent == sent
    assert ended
    assert refused
    assert comm.allreduce(np.array([comm.rank])) == sum(range(comm.size))


NO_BUFFERS = ARRAYS[6:12] + ARRAYS[14:]  # what nothing can be sent from or received into


@pytest.mark.parametrize("bad", range(len(NO_BUFFERS)))
def test_messages_with_wrong_buffers_are_refused(comm, bad):
    bad, good = NO_BUFFERS[bad](3), np.ones(3)
    for name, arguments in [
        ("send", (bad, 0)),
        ("recv", (bad, 0)),
        ("sendrecv", (bad, 0, good, 0)),
        ("sendrecv", (good, 0, bad, 0)),
        ("scatter", (good, bad, 0)),
    ]:
        assert not attempt(comm, name, arguments, "")


@pytest.mark.parametrize("root", range(4, len(ROOTS) - 2))
def test_messages_to_ranks_that_do_not_exist_are_refused(comm, root):
    root, x = ROOTS[root], np.ones(3)
    for name, arguments in [
        ("send", (x, root)),
        ("recv", (x, root)),
        ("sendrecv", (x, root, x.copy(), 0)),
        ("sendrecv", (x, 0, x.copy(), root)),
        ("scatter", (x, x.copy(), root)),
    ]:
        assert not attempt(comm, name, arguments, "")
