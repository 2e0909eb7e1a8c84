"""How fast all-reduces are, call by call in turn: ours from device memory and staged, and the MPI's own.

float32, out of place. busbw is 2 (p - 1) / p times the bytes over the slowest rank's time, in GB/s (1e9 bytes), median
and quartiles over repetitions. Beside it: a copy within the device of as many bytes (each read once and written once,
counted once), and to and from pinned host memory, by rank 0 while the others wait.
"""

import time

import numpy as np
from mpi4py import MPI

from mpicoll import cost
from mpicoll.algorithms import FAMILIES
from mpicoll.algorithms.cut import even

SIZES = [8, 64 << 10, 1 << 20, 16 << 20, 64 << 20, 256 << 20]  # bytes
ALL_UP_TO = 1 << 20  # bytes; above, only what is chosen, and algorithms that send little more than they must
RATIO_AT, WANTED = 64 << 20, 5  # bytes; times as fast as the MPI's by way of the host
HOST_STAGED = "MPI's by way of the host"
MOST, LEAST, CALLS = 25, 3, 20  # repetitions; calls in one repetition of a small size


def lean(name, count, size):
    """Whether no rank sends more than half as much again as it must, of `count` elements."""
    sent = max(cost.of("allreduce", name, rank, even(count, size), 1).sent for rank in range(size))
    return sent <= 1.5 * 2 * (size - 1) / size * count


def contenders(run, nbytes):
    """{name: (way, call)}; each call leaves the sum in y."""
    maker, comm, count = run.maker, run.comm, nbytes // 4
    x, y = maker.array(np.ones(count, "float32")), maker.array(np.zeros(count, "float32"))
    send, receive = (maker.pinned(nbytes) for _ in range(2))
    on_host = [[host, count, MPI.FLOAT] for host in (send, receive)]
    on_device = [[maker.buffer(array), count, MPI.FLOAT] for array in (x, y)]

    def host_staged():
        maker.to_host(send, x)
        run.world.Allreduce(*on_host)
        maker.to_device(y, receive)

    calls = {}
    if run.way == "aware":
        calls["ours aware"] = ("aware", lambda: comm.allreduce(x, y))
        for name in FAMILIES["allreduce"]:
            if nbytes <= ALL_UP_TO or lean(name, count, comm.size):
                calls[f"ours aware {name}"] = ("aware", lambda name=name: comm.allreduce(x, y, algorithm=name))
    calls["ours staged"] = ("staged", lambda: comm.allreduce(x, y))
    if run.native:
        calls["MPI's on the device"] = ("staged", lambda: run.world.Allreduce(*on_device))
    calls[HOST_STAGED] = ("staged", host_staged)
    return calls, y


def copies(run, nbytes):
    """{name: seconds} of copies by rank 0."""
    if run.comm.rank:
        return {}
    maker = run.maker
    a, b = (maker.array(np.zeros(nbytes // 4, "float32")) for _ in range(2))
    host = maker.pinned(nbytes)
    several = max(1, min(50, (1 << 30) // nbytes))

    def within():
        for _ in range(several):
            maker.copy(b, a)
        maker.synchronise()

    found = {}
    for name, copy, times in (
        ("copy on the device", within, several),
        ("copy to the host", lambda: maker.to_host(host, a), 1),
        ("copy to the device", lambda: maker.to_device(a, host), 1),
    ):
        took = []
        for _ in range(6):
            maker.synchronise()
            start = time.perf_counter()
            copy()
            took.append((time.perf_counter() - start) / times)
        found[name] = float(np.median(took[1:]))
    return found


def measured(run, calls, nbytes, in_time):
    """{name: seconds of the slowest rank, for each repetition}."""
    each = CALLS if nbytes <= 64 << 10 else 1
    times = {name: [] for name in calls}
    for repetition in range(-2, MOST):  # the first two warm up
        if repetition >= LEAST and not in_time():
            break
        for name, (way, call) in calls.items():
            run.maker.way(way)
            run.world.Barrier()
            start = time.perf_counter()
            for _ in range(each):
                call()
            took = run.world.allreduce((time.perf_counter() - start) / each, MPI.MAX)
            if repetition >= 0:
                times[name].append(took)
    return times


def check(run):
    size, sizes = run.comm.size, run.sizes or SIZES
    sizes = sorted(sizes, key=lambda nbytes: (nbytes == RATIO_AT, nbytes))  # last what the table shows
    for nbytes in sizes:
        calls, y = contenders(run, nbytes)
        times = measured(run, calls, nbytes, run.clock(1 / len(sizes)))
        for name, (way, call) in calls.items():
            run.maker.way(way)
            run.maker.copy(y, run.maker.array(np.zeros(nbytes // 4, "float32")))
            run.maker.synchronise()
            call()
            assert (run.maker.host(y) == size).all(), (name, nbytes)
        copied = copies(run, nbytes)
        if run.comm.rank == 0:
            tell(run, nbytes, times, copied)
            if nbytes == sizes[-1] and "ours aware" in times:
                compare(run, nbytes, times, copied["copy on the device"])
        run.world.Barrier()


def busbw(run, nbytes, seconds):
    return float(cost.busbw_factor("allreduce", run.comm.size)) * nbytes / float(seconds) / 1e9


def tell(run, nbytes, times, copied):
    for name, took in times.items():
        low, middle, high = np.percentile(took, [25, 50, 75])
        speeds = [busbw(run, nbytes, seconds) for seconds in (high, middle, low)]
        run.say("bandwidth", nbytes=nbytes, call=name, seconds=middle, busbw=speeds, repetitions=len(took))
        spread = f"({speeds[0]:.3f}-{speeds[2]:.3f})"
        run.say("note", text=f"{nbytes:>11,} B {name:<30}{middle * 1e6:11.1f} us {speeds[1]:9.3f} GB/s {spread}")
    for name, seconds in copied.items():
        speed = nbytes / seconds / 1e9
        run.say("bandwidth", nbytes=nbytes, call=name, seconds=seconds, speed=speed)
        run.say("note", text=f"{nbytes:>11,} B {name:<30}{seconds * 1e6:11.1f} us {speed:9.3f} GB/s")


def compare(run, nbytes, times, copy):
    """The two figures that matter, of the best of ours: against calls of the same repetition, and against a copy."""
    name = min((name for name in times if name.startswith("ours aware")), key=lambda name: np.median(times[name]))
    ratio = float(np.median(np.array(times[HOST_STAGED]) / times[name]))
    share = busbw(run, nbytes, np.median(times[name])) / (nbytes / copy / 1e9)
    run.say("ratio", nbytes=nbytes, call=name, to_host_staged=ratio, of_copy_speed=share)
    met = "met" if ratio >= WANTED else "NOT MET"
    run.say("note", text=f"{nbytes:>11,} B {name}: {ratio:.2f} x {HOST_STAGED} (wanted: {WANTED} x: {met}), "
            f"{share:.0%} of the copy speed")  # fmt: skip
