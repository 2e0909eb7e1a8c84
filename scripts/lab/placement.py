"""What it costs how ranks are placed: net.sh 2 scripts/lab/mpirun.sh --per-host 2 python scripts/lab/placement.py

All-reduce of 16 MiB among ranks that are numbered host by host, and by turns on the hosts. A ring in the order of the
numbers crosses between the hosts once in the first case and with every message in the second; mpicoll counts the ranks
host by host in both; `hierarchical` sends each byte across once. Everything is timed in turn, again and again; shown
are medians of the slowest rank's times, with quartiles; float32, every result compared with the exact sum.
"""

import time

import numpy as np
from mpi4py import MPI

import mpicoll
from mpicoll.algorithms import FAMILIES

BYTES, REPETITIONS = 16 << 20, 9
ALGORITHMS = {
    "ring as numbered": FAMILIES["allreduce"]["ring"],
    "ring": "ring",
    "hierarchical": "hierarchical",
    "auto": None,
}

world = MPI.COMM_WORLD


def numbered(by_turns):
    """A Communicator of all ranks, numbered host by host or by turns."""
    with mpicoll.Communicator(world) as comm:
        node, local = comm.places[comm.rank]
    return mpicoll.Communicator(world.Split(0, local * comm.size + node if by_turns else node * comm.size + local))


def timed(comm):
    """Milliseconds of every repetition, by algorithm."""
    x, result = np.ones(BYTES // 4, np.float32), np.empty(BYTES // 4, np.float32)
    found = {name: [] for name in ALGORITHMS}
    for _ in range(REPETITIONS):
        for name, algorithm in ALGORITHMS.items():
            comm.barrier()
            start = time.perf_counter()
            comm.allreduce(x, result, algorithm=algorithm)
            found[name].append(1e3 * world.allreduce(time.perf_counter() - start, MPI.MAX))
            assert (result == comm.size).all()
    return found


for by_turns in (False, True):
    with numbered(by_turns) as comm:
        if comm.nodes.count(0) in (1, comm.size):
            raise SystemExit("placement: it takes several hosts with several ranks each")
        times, chosen = timed(comm), comm.explain("allreduce", BYTES).algorithm
        if comm.rank == 0:
            print(f"{'by turns' if by_turns else 'host by host'}: nodes {', '.join(map(str, comm.nodes))}")
            for name, values in times.items():
                low, middle, high = np.percentile(values, [25, 50, 75])
                shown = f"auto: {chosen}" if name == "auto" else name
                ratio = np.median(np.divide(times["ring as numbered"], values))
                print(f"  {shown:<20}{middle:8.1f} ms  ({low:.1f} - {high:.1f})  {ratio:5.2f} x as fast", flush=True)
