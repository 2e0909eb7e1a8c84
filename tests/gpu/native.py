"""The MPI's own all-reduce takes device memory, and is right; where it cannot, this crashes or fails."""

import numpy as np
from mpi4py import MPI


def check(run):
    maker, size = run.maker, run.comm.size
    for count in (2, 16_384, 1 << 20):
        x, y = maker.array(np.full(count, 1 + run.comm.rank, "float32")), maker.array(np.zeros(count, "float32"))
        run.world.Allreduce([maker.buffer(x), count, MPI.FLOAT], [maker.buffer(y), count, MPI.FLOAT])
        assert (maker.host(y) == size * (size + 1) / 2).all(), f"wrong sums of {count} floats"
    run.say("note", text="right")
