"""Copies and messages of a large staged all-to-all overlap: mpirun -np 2 python tests/mpi/timeline.py

On the stand-in device, whose copies to and from the host take as long as at 2 GB/s. The same call is made with messages
in pieces of 4 MiB and in one; a timeline of rank 0 is printed for the pieces.
"""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import numpy as np
from late import Device
from mpi4py import MPI

import mpicoll
from mpicoll.progress import call

RATE, NBYTES, WIDTH, TIMES = 2e9, 32 << 20, 72, 9


def main():
    with mpicoll.Communicator(MPI.COMM_WORLD) as comm:
        seconds = {}
        for limit in [call.MESSAGE_LIMIT, 1 << 30] * TIMES:
            device = Device(rates={"outward": RATE, "inward": RATE, "kernels": 1e12, "user": 1e12})
            x, y = (device.array(np.zeros(comm.size * NBYTES, np.uint8)) for _ in range(2))
            call.MESSAGE_LIMIT = limit
            comm.barrier()
            start = time.perf_counter()
            comm.alltoall(x, y)
            seconds.setdefault(limit, []).append((time.perf_counter() - start, start, device.log))
        if comm.rank == 0:
            report(seconds, comm.size - 1)


def report(seconds, peers):
    (pieces, start, log), (whole, _, _) = (
        sorted(runs, key=lambda run: run[0])[TIMES // 2] for runs in seconds.values()
    )
    copy = peers * NBYTES / RATE
    print(
        f"each way {peers * NBYTES >> 20} MiB: copy out {copy * 1e3:.1f} ms, copy in {copy * 1e3:.1f} ms at the rates"
    )
    print(f"in one message {whole * 1e3:6.1f} ms (median of {TIMES})")
    print(f"in pieces      {pieces * 1e3:6.1f} ms: copies out and in, and messages, overlap")
    for name in ("to the host", "to the device"):
        spans, began = [], []
        for when, what in log:
            if what == f"a copy {name} began":
                began.append(when)
            elif what == f"a copy {name} ended":
                spans.append((began.pop(0), when))
        line = [" "] * WIDTH
        for i, span in enumerate(spans):
            first, last = (round((when - start) / pieces * (WIDTH - 1)) for when in span)
            line[first : last + 1] = str(i % 10) * (last + 1 - first)
        print(f"copy {name:<14}|{''.join(line[:WIDTH])}|")


if __name__ == "__main__":
    main()
