"""Which ranks share a node."""

import numpy as np
from mpi4py import MPI

NAME_BYTES = 256  # MPI.MAX_PROCESSOR_NAME is no more in the MPIs we know; longer names are cut


def own_name():
    """The name of this rank's node, as NAME_BYTES of uint8, filled up with zeros."""
    name = MPI.Get_processor_name().encode()[:NAME_BYTES]
    return np.frombuffer(name.ljust(NAME_BYTES, b"\0"), np.uint8)


def number_nodes(names):
    """For each rank (its node, its rank among those of its node); nodes are numbered in the order of their lowest rank.

    Args:
        names: one hashable name for each rank.
    """
    nodes, members, places = {}, {}, []
    for name in names:
        node = nodes.setdefault(name, len(nodes))
        places.append((node, members.get(node, 0)))
        members[node] = members.get(node, 0) + 1
    return places
