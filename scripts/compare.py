"""Times mpicoll's all-reduce against the MPI's own, call by call in turn: mpirun -np 2 python scripts/compare.py

float32, out of place, back-to-back calls; medians over repetitions of the slowest rank's mean time, and their ratio to
the native call of the same repetition (below 1: mpicoll is faster), with the middle half of the ratios as spread.
"""

import time

import numpy as np
from mpi4py import MPI

import mpicoll

SIZES = {"8 B": 8, "64 KiB": 64 << 10, "1 MiB": 1 << 20, "64 MiB": 64 << 20}
REPETITIONS = 25

world = MPI.COMM_WORLD
comm = mpicoll.Communicator(world)
if comm.rank == 0:
    print(f"{MPI.get_vendor()}, {comm.size} ranks; us, and ratio to native (quartiles)")
    print(f"{'size':>8}{'native':>12}{'blocking':>12}{'':22}{'persistent':>12}")
for name, nbytes in SIZES.items():
    x = np.ones(nbytes // 4, "float32")
    y = np.empty_like(x)
    plan = comm.allreduce_init(x, y)
    calls = [
        lambda x=x, y=y: world.Allreduce(x, y),
        lambda x=x, y=y: comm.allreduce(x, y),
        lambda plan=plan: (plan.start(), plan.wait()),
    ]
    calls_each = max(2, min(2000, (20 << 20) // nbytes))
    times = np.zeros((REPETITIONS, len(calls)))
    for repetition in range(-2, REPETITIONS):  # the first two warm up
        for i, call in enumerate(calls):
            world.Barrier()
            start = time.perf_counter()
            for _ in range(calls_each):
                call()
            took = (time.perf_counter() - start) / calls_each * 1e6
            if repetition >= 0:
                times[repetition, i] = world.allreduce(took, MPI.MAX)
    if comm.rank == 0:
        native, blocking, persistent = np.median(times, axis=0)
        ratios = times[:, 1:] / times[:, :1]
        low, middle, high = np.percentile(ratios, [25, 50, 75], axis=0)
        shown = [f"{middle[i]:6.2f} ({low[i]:.2f}-{high[i]:.2f})" for i in range(2)]
        print(f"{name:>8}{native:12.2f}{blocking:12.2f}{shown[0]:>22}{persistent:12.2f}{shown[1]:>22}", flush=True)
    plan.free()
