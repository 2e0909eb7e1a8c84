"""All kernels are compiled, each by one rank, and from then on in CuPy's cache."""

import time

import numpy as np
from exact import dtypes

from mpicoll.arrays import OPS, undefined


def check(run):
    start, maker = time.perf_counter(), run.maker
    pairs = [(dtype, op) for dtype in dtypes(run) for op in OPS if not undefined(op, dtype)]
    for i, (dtype, op) in enumerate(pairs):
        if i % run.comm.size == run.comm.rank:
            x, y = (maker.array(np.ones(8, dtype)) for _ in range(2))
            maker.kind.reduction(op)(x, x, y)
            if finish := maker.kind.finishing(op, 2):
                maker.synchronise()
                finish(x)
    maker.spin(0)
    maker.synchronise()
    took = run.world.allreduce(time.perf_counter() - start, op=max)
    run.say("note", text=f"{len(pairs)} reductions in {took:.1f} s")
