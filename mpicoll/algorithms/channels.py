"""Channels: k parts of the buffer take the same algorithm side by side, each on a lane.

Where the algorithm cuts the buffer into chunks, every chunk is cut into k parts, otherwise the buffer is. The odd
channels number the ranks backwards: two rings go round in opposite directions, and two trees have other inner ranks.

    channel 0    0 -> 1 -> 2 -> 3 -> 0        as trees from root 0    0 -> 2    0 -> 1    2 -> 3
    channel 1    0 <- 1 <- 2 <- 3 <- 0                                0 -> 2    0 -> 3    2 -> 1

Cost: k times the alphas, and the same bytes sent and reduced, since a rank's lanes share its ports. It pays where a
rank has several links, where a link carries more in both directions than in one, or where reductions do not hide: one
channel reduces while another's messages fly. (As NCCL's channels.)

Order of reduction: the algorithm's; in the odd channels with the ranks numbered backwards.
"""

from collections.abc import Callable
from typing import Any

from ..language import Algorithm, Comm
from .cut import cut
from .order import seen


def side_by_side(
    function: Callable[..., Algorithm], arguments: dict[str, Any], comm: Comm, channels: int, options: dict[str, Any]
) -> Algorithm:
    """function(comm, **arguments, **options) has run for each of `channels` parts of its arrays, each on a lane."""
    if channels < 1:
        raise ValueError(f"channels is {channels}; it must be at least 1")
    lanes = []
    for k in range(channels):
        order = range(comm.size)[:: -1 if k % 2 else 1]
        parts = {name: _part(name, argument, k, channels, order) for name, argument in arguments.items()}
        lanes.append(function(comm.lane(k).group(order), **parts, **options))
    yield tuple(lanes)


def _part(name: str, argument: Any, k: int, channels: int, order: range) -> Any:
    """What channel k, with the ranks in this order, gets instead of an argument."""
    if argument is None or name in ("op", "root"):
        return seen(name, argument, order)
    if name in ("chunks", "result_chunks"):
        return [cut(chunk, channels)[k] for chunk in seen(name, argument, order)]
    return cut(argument, channels)[k]
