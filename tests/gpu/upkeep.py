"""Repeated calls take no more memory, and what profilers see is named."""

import contextlib

import numpy as np

SIZES = (0, 100, 70_000, 1_100_000)  # elements of 4 bytes
CALLS = 10
SLACK = 16 << 20  # bytes, of what other processes of the machine may do meanwhile


class Counted:
    """Memory that is counted when it is taken."""

    def __init__(self, source):
        self.source, self.taken = source, 0

    def memory(self, nbytes):
        self.taken += 1
        return self.source(nbytes)


def calls(run, count):
    comm, maker = run.comm, run.maker
    for size in SIZES:
        x, y = maker.array(np.ones(size, "float32")), maker.array(np.zeros(size, "float32"))
        plan = comm.allreduce_init(x, y)
        for _ in range(count):
            comm.allreduce(x, y)
            comm.iallreduce(x, y).wait()
            comm.allreduce(x)
            plan.start()
            plan.wait()
        plan.free()
    maker.synchronise()


def check(run):
    kind, spans = run.maker.kind, set()
    scratch, pinned = Counted(kind.memory), Counted(kind.pinned.memory)
    kind.memory, kind.pinned = scratch.memory, pinned
    named = kind.span

    @contextlib.contextmanager
    def span(name):
        spans.add(name)
        with named(name):
            yield

    kind.span = span
    calls(run, 3)  # the pools fill
    run.world.Barrier()
    used, taken = run.maker.used(), (scratch.taken, pinned.taken)
    run.world.Barrier()
    calls(run, CALLS)
    run.world.Barrier()
    more, taken_more = run.maker.used() - used, (scratch.taken - taken[0], pinned.taken - taken[1])
    run.say("upkeep", more_bytes=more, more_scratch=taken_more[0], more_pinned=taken_more[1], spans=len(spans))
    assert taken_more == (0, 0), f"more memory was taken: {taken_more} times (device, pinned host)"
    assert more <= SLACK, f"{more:,} bytes more are taken of the device's memory"
    assert any(name.startswith("allreduce round") for name in spans), spans
    run.say("note", text=f"{4 * CALLS * len(SIZES)} calls: {more / 2**20:.1f} MiB more of the device's memory; "
            f"{scratch.taken} pieces of scratch memory, {pinned.taken} pinned, from the first calls on")  # fmt: skip
