"""A Communicator whose ranks are told to be on several nodes."""

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll
from mpicoll import selection, topology

pytestmark = pytest.mark.mpi


NODES = {
    "two of each": lambda rank: rank // 2,
    "by turns": lambda rank: rank % 2,
    "one, and all others": lambda rank: int(rank > 0),
}


@pytest.mark.parametrize("layout", NODES)
def test_hierarchical_goes_by_the_nodes(monkeypatch, layout):
    name = np.frombuffer(f"node {NODES[layout](MPI.COMM_WORLD.rank)}".ljust(64).encode(), np.uint8).copy()
    monkeypatch.setattr(topology, "own_name", lambda: name)
    with mpicoll.Communicator(MPI.COMM_WORLD) as comm:
        x = np.arange(37.0) + comm.rank
        total = comm.size * np.arange(37) + sum(range(comm.size))
        assert (comm.allreduce(x, algorithm="hierarchical") == total).all()
        assert (comm.broadcast(x, root=comm.size - 1, algorithm="hierarchical") == np.arange(37) + comm.size - 1).all()
        rows = np.arange(5.0 * comm.size).reshape(comm.size, 5)
        own = comm.reduce_scatter(rows, algorithm="hierarchical")
        assert (own.reshape(-1) == comm.size * rows[comm.rank]).all()
        assert (comm.allgather(own, algorithm="hierarchical") == comm.size * rows).all()


@pytest.mark.parametrize("layout", NODES)
def test_left_to_itself_a_call_is_priced_by_the_nodes_alike_on_all_ranks(monkeypatch, layout):
    name = np.frombuffer(f"node {NODES[layout](MPI.COMM_WORLD.rank)}".ljust(64).encode(), np.uint8).copy()
    monkeypatch.setattr(topology, "own_name", lambda: name)
    with mpicoll.Communicator(MPI.COMM_WORLD) as comm:
        assert isinstance(comm.nodes, selection.Nodes)  # it is a key of every call's choice
        assert comm.nodes == tuple(node for node, _ in comm.places)
        for nbytes in 8, 80_000:
            x = np.full(nbytes // 8, comm.rank + 1.0)
            assert (comm.allreduce(x) == comm.size * (comm.size + 1) / 2).all()
            choice = comm.explain("allreduce", nbytes)
            if len(set(comm.nodes)) > 1:
                assert f"on {comm.size} ranks in {len(set(comm.nodes))} nodes" in choice.reason
            assert len({str(other) for other in MPI.COMM_WORLD.allgather(choice)}) == 1
