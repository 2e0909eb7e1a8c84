"""The world: N ranks in one process, no MPI, that run the same generators and prove what they do.

A send completes only when it is matched; a receive's buffer holds nothing until then. What is wrong is found by name
(`faults`), at the rank and round where it happens. Memory is NumPy arrays in both kinds of data: `Symbols`, where every
element knows its index and the ordered expression of contributions it is made of, and `Numbers`.

    World(4, Numbers("sum", 4)).run(lambda comm, op: ring.allreduce(comm, chunks[comm.rank], results[comm.rank], op))

Read `world` (ranks and mailboxes), then `path` (a generator and its rounds), `memory` (who may touch what), `symbols`;
`proof` runs a whole collective and checks its results. `clock` is the world in which messages take time, and `nothing`
the data with which it is fast.
"""

from .clock import Clock, simulate
from .faults import Fault
from .numeric import Numbers
from .proof import prove
from .symbols import Symbols
from .world import Counts, World

__all__ = ["Clock", "Counts", "Fault", "Numbers", "Symbols", "World", "prove", "simulate"]
