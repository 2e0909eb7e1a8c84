"""What the probe starts, two processes under a launcher: they send memory to themselves and to each other.

They print lines of JSON: {"began": true}, then {"right": messages}, or {"wrong": what was seen}. The arguments are the
kind of memory, "device" or "host", and the seconds after which each ends itself, whether or not its launcher lives.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from typing import Any

from .. import gpu, runtime

SIZES = (0, 1, 8, 1001, 64 * 1024, 64 * 1024 + 1, 4 * 1024 * 1024 + 3)  # bytes; MPIs treat small and large unalike
OFFSETS = (0, 13)  # bytes into an allocation
UNTOUCHED = 255  # what contents() never gives


def contents(xp: Any, source: int, nbytes: int) -> Any:
    """What rank `source` sends; `xp` is NumPy or CuPy."""
    return ((xp.arange(nbytes, dtype="uint32") * 31 + nbytes + 7 * source) % UNTOUCHED).astype("uint8")


def exchange(comm: Any, xp: Any, peer: int, nbytes: int, offset: int) -> bool:
    """Whether all that the peer sent has arrived, and nothing beside it was written."""
    from mpi4py import MPI

    def message(array: Any) -> Any:
        pointer = array.ctypes.data if xp.__name__ == "numpy" else array.data.ptr
        return [MPI.buffer.fromaddress(pointer + offset, nbytes), MPI.BYTE]

    sent, got = (xp.full(nbytes + 2 * offset + 8, UNTOUCHED, "uint8") for _ in range(2))
    part = slice(offset, offset + nbytes)
    wanted = got.copy()
    sent[part], wanted[part] = contents(xp, comm.rank, nbytes), contents(xp, peer, nbytes)
    if xp.__name__ != "numpy":
        xp.cuda.runtime.deviceSynchronize()  # MPI knows nothing of kernels
    MPI.Request.Waitall([comm.Irecv(message(got), peer), comm.Isend(message(sent), peer)])
    return bool((got == wanted).all())


def main(memory: str, seconds: str) -> int:
    """The exit status, 0 if every byte was right."""
    signal.alarm(int(seconds))
    if memory == "device":
        gpu.choose(runtime.launched_rank())  # type: ignore[no-untyped-call]  # two processes on one node: local rank
        import cupy as xp
    else:
        import numpy as xp
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    near = comm.Split_type(MPI.COMM_TYPE_SHARED).size
    if (comm.size, near) != (2, 2):
        say(wrong=f"the world of a process had size {comm.size}, and {near} on its node, where 2 were started")
        return 1
    if comm.rank == 0:
        say(began=True)
    cases = [(peer, nbytes, offset) for peer in (comm.rank, 1 - comm.rank) for nbytes in SIZES for offset in OFFSETS]
    try:
        faults = [case for case in cases if not exchange(comm, xp, *case)]
    except Exception as error:
        say(wrong=f"rank {comm.rank} met {type(error).__name__}: {error}")
        time.sleep(0.1)  # a launcher ends all at once, whether or not it has passed on what was said
        comm.Abort(1)
        raise
    if faults:
        peer, nbytes, offset = faults[0]
        what = f"{nbytes} bytes from rank {peer}, {offset} bytes into an allocation,"
        say(wrong=f"rank {comm.rank} got wrong content: {what} are not what was sent")
        return 1
    if comm.rank == 0:
        say(right=2 * len(cases))
    return 0


def say(**what: Any) -> None:
    print("\n" + json.dumps(what), flush=True)  # on a line of its own, whatever else was printed


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
