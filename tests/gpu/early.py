"""Nothing is touched too early: kernels of random length come before the data, on several streams, in all forms.

Then the same with a planted fault, which must be found: the collectives do not wait for the caller's work. Besides:
memory that MPI cannot be given, and memory that is given back and taken anew at the same address.
"""

import random

import numpy as np
from exact import perform
from forms import FORMS

import mpicoll
from mpicoll.algorithms import FAMILIES

COUNTS = (1000, 300_001)  # elements
ROUNDS = 5


def right(run, comm, seconds, form, count, number, **arguments):
    """Whether the sum of data that changes with `number` is right."""
    x = (np.arange(count) % 100 + comm.rank + 7 * number).astype("float32")
    result, _ = perform(comm, run.maker, seconds, form, "allreduce", x, np.empty_like(x), **arguments)
    ranks = comm.size * (comm.size - 1) // 2
    want = (comm.size * (np.arange(count) % 100 + 7 * number) + ranks).astype("float32")
    return bool((run.maker.host(result) == want).all())


def random_delays(run):
    delays, number = random.Random(run.comm.rank), 0
    in_time = run.clock()
    for form in FORMS:
        for algorithm in FAMILIES["allreduce"]:
            for count in COUNTS:
                for _ in range(ROUNDS):
                    number += 1
                    if not in_time():
                        return number
                    seconds = delays.uniform(0, 2e-3)
                    where = (run.way, form, algorithm, count, seconds)
                    assert right(run, run.comm, seconds, form, count, number, algorithm=algorithm), where
                    with run.maker.stream():
                        assert right(run, run.comm, seconds, form, count, number, algorithm=algorithm), (
                            where,
                            "stream",
                        )
    return number


def special_memory(run):
    """How many arrays were reduced."""
    maker, comm = run.maker, run.comm
    x = np.arange(50_000, dtype="float32")
    assert maker.kind.direct(maker.array(x)) == (run.way == "aware")
    names = []
    for name, array in maker.unshared(x):
        assert not maker.kind.direct(array), f"memory of kind {name} may not be given to MPI"
        for output in (None, array):
            y = maker.host(comm.allreduce(array, output))
            assert (y == comm.size * x).all(), name
        names.append(name)
    addresses = set()
    for number in range(20):
        array = maker.fresh(np.full(600_000, number, "float32"))
        addresses.add(maker.buffer(array).address if run.device == "gpu" else number)
        assert (maker.host(comm.allreduce(array)) == comm.size * number).all(), "memory taken anew"
        del array
    return names, 20 - len(addresses)


def attempt(run, comm):
    """True if all is right, False if something is wrong, or the name of the error that was raised."""
    verdict = True
    try:
        for number in range(5):
            verdict &= right(run, comm, 5e-3, "blocking", COUNTS[0], number, algorithm="ring")
    except Exception as error:
        return type(error).__name__
    return verdict


def found(verdicts):
    """Whether what some rank saw is due to data taken too early; the stand-in says so itself."""
    return False in verdicts or "TooEarly" in verdicts


def planted(run):
    """The fault is planted, and found."""
    for name, ready in (("nothing", None), ("the first step does not wait", lambda: None)):
        comm = mpicoll.Communicator(run.world)
        if ready:
            run.maker.kind.ready = ready
        verdict = attempt(run, comm)
        comm._transport.fail("it was planted", "nothing else")
        run.maker.synchronise()
        verdicts = run.world.allgather(verdict)
        assert found(verdicts) == bool(ready), f"planted was: {name}; seen was: {verdicts}"
    del run.maker.kind.ready


def check(run):
    calls = random_delays(run)
    names, again = special_memory(run)
    planted(run)
    run.say("early", calls=calls, bounced=names, addresses_again=again)
    run.say("note", text=f"{calls} calls right, bounced: {', '.join(names)}; {again} of 20 addresses came again; the "
            "planted fault was found")  # fmt: skip
