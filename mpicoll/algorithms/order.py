"""An algorithm on its ranks in another order, such as that of the machine, in which a node's ranks are neighbours.

A ring of 4 ranks that the launcher has placed by turns on two nodes, as it comes and in the order 0, 2, 1, 3:

    node    a    b    a    b              a    a    b    b
            0 -> 1 -> 2 -> 3 -> 0         0 -> 2 -> 1 -> 3 -> 0
            4 messages cross              2 messages cross

What ranks get stays theirs: chunk i belongs to rank i. Cost and order of reduction: the algorithm's, with the ranks
counted in this order. (As NCCL lays its rings over the machine.)
"""

from collections.abc import Sequence
from typing import Any


def seen(name: str, argument: Any, order: Sequence[int]) -> Any:
    """What an algorithm gets as its argument `name` if its ranks are counted in this order."""
    if name == "root":
        return order.index(argument)
    if name in ("chunks", "result_chunks") and argument is not None:
        return [argument[rank] for rank in order]
    return argument
