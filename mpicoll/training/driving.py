"""How communication is cut and driven beside the computation, where the arguments do not say: as measured best.

On one node an all-reduce takes little of a step, and its ranks have all cores: more buckets and a thread cost more than
they hide. Across nodes the network is slow and the cores wait for it: there many buckets start early and leave little
for the end, and a thread goes on with them while a layer computes. On a device nothing keeps the host from driving.
"""

from mpi4py import MPI

from .buckets import MIB

ONE_NODE = 25  # MiB, as PyTorch's
ACROSS = 20  # buckets, if nothing else bounds them
LEAST = 0.25  # MiB; below, messages cost more than they hide


def bucket_cap_mb(nodes, nbytes):
    """MiB for gradients of nbytes bytes on ranks in so many nodes."""
    return ONE_NODE if nodes == 1 else min(max(nbytes / MIB / ACROSS, LEAST), ONE_NODE)


def by_thread(nodes, on_host):
    """Whether a thread drives communication; only where the MPI lets it."""
    return nodes > 1 and on_host and MPI.Query_thread() == MPI.THREAD_MULTIPLE
