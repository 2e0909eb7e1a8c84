"""Which algorithm performs a call; it depends only on what all ranks share: collective, bytes, number of ranks."""

from .algorithms import FAMILIES

SMALL = 256 * 1024  # bytes; up to here the fewest rounds win, above the fewest bytes
SMALL_PAIR = 4 << 20  # two ranks send as many bytes either way

_FEWEST_ROUNDS = {
    collective: next(name for name in ("recursive_doubling", "tree", "ring") if name in family)
    for collective, family in FAMILIES.items()
}


def choose(collective, nbytes, size):
    """The name of the algorithm that `auto` takes for a buffer of `nbytes` bytes on `size` ranks."""
    if collective == "allreduce" and nbytes > (SMALL_PAIR if size == 2 else SMALL):
        return "ring"
    return _FEWEST_ROUNDS[collective]


def find(collective, algorithm, nbytes, size):
    """The function that performs the collective: the forced `algorithm`, or the one `choose` names if it is None.

    Raises:
        ValueError: there is no such algorithm for this collective; the message lists those there are.
    """
    family = FAMILIES[collective]
    if algorithm is None:
        return family[choose(collective, nbytes, size)]
    if not isinstance(algorithm, str) or algorithm not in family:
        raise ValueError(f"{collective}: algorithm is {algorithm!r}; there are {', '.join(map(repr, family))}")
    return family[algorithm]
