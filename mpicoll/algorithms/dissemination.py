"""Dissemination: in round k every rank tells the one at distance 2^k what it knows; that doubles in each round.

    rank       0      1      2      3
    knows of   0      1      2      3
    round 0    03     01     12     23         0 -> 1 -> 2 -> 3 -> 0
    round 1    0123   0123   0123   0123       0 -> 2 -> 0    1 -> 3 -> 1

Cost, p ranks: ceil(lg p) alpha for any p, the least possible. (Hensgen, Finkel & Manber, Int. J. Parallel Programming
1988.) What a rank knows overlaps with what it hears when p is no power of two; so this reduces nothing.
"""

from ..language import Algorithm, Array, Comm, Op


def barrier(comm: Comm, token: Array, op: Op) -> Algorithm:
    """No rank has left before all have entered; `token` is the empty array that is sent."""
    distance = 1
    while distance < comm.size:
        yield (
            comm.Isend(token, (comm.rank + distance) % comm.size),
            comm.Irecv(token, (comm.rank - distance) % comm.size),
        )
        distance *= 2
