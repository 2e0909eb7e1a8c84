"""The measured order in which gradients become ready, the same on all ranks."""

import numpy as np


def of_rank_0(comm, order, parameters):
    """The parameters in the order in which they are on rank 0.

    Args:
        order: this rank's own; all of `parameters`, which are in the same order on all ranks.
    """
    place = {p: i for i, p in enumerate(parameters)}
    indices = comm.ibroadcast(np.array([place[p] for p in order], np.int64), root=0).wait()
    return [parameters[i] for i in indices]
