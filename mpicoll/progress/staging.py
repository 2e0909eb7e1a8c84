"""Messages of arrays whose memory MPI cannot be given, by way of pinned host memory.

    send       copying to the host  ->  posted  ->  done
    receive    posted  ->  copying to the device  ->  done

Long messages are cut into pieces (`call.MESSAGE_LIMIT`), each of which goes this way by itself: while one piece flies,
the next is being copied.

    sender     copy 0 | copy 1 | copy 2 | copy 3
    message           |   0    |   1    |   2    |   3
    receiver                   | copy 0 | copy 1 | copy 2 | copy 3

MPI matches messages in the order in which they are posted, so those of one route (a peer and a tag) are posted in the
order of their calls, whenever their copies are done.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from mpi4py import MPI

from ..arrays import Event


class StagedSend:
    """A message that is posted when its data is in host memory, and after those before it on its route.

    Args:
        copy: starts the copy to the host; None: MPI takes the array as it is, and only the order matters.
        post: posts the message; returns its request.
        route: the messages of the same peer and tag that are not posted yet.
        ended: called when the host memory is free again.
    """

    __slots__ = ("copy", "ended", "event", "post", "request", "route", "status")

    def __init__(
        self,
        copy: Callable[[], Event] | None,
        post: Callable[[], MPI.Request],
        route: deque[StagedSend],
        ended: Callable[[], object],
    ) -> None:
        self.copy, self.post, self.route, self.ended = copy, post, route, ended
        self.event: Event | None = None
        self.request: MPI.Request | None = None
        self.status = MPI.Status()

    def Start(self) -> None:
        """It is copying."""
        self.request = None
        self.event = self.copy() if self.copy else None
        self.route.append(self)

    def Test(self) -> bool:
        """Whether it is done; what may be posted on the route is."""
        while self.route and self.route[0]._copied():
            first = self.route.popleft()
            first.request = first.post()
        if self.request is None or not self.request.Test(self.status):
            return False
        self.ended()
        return True

    def _copied(self) -> bool:
        return self.event is None or self.event.Test()

    def Get_status(self) -> bool:
        """Whether the message is done; only looks."""
        return self.request is not None and self.request.Get_status()


class StagedRecv:
    """A message received in host memory and copied to the array when it is there.

    Args:
        post: posts the receive; returns its request.
        copy: starts the copy of so many bytes to the device.
        ended: called when the host memory is free again.
    """

    __slots__ = ("copy", "ended", "event", "post", "request", "status")

    def __init__(
        self, post: Callable[[], MPI.Request], copy: Callable[[int], Event], ended: Callable[[], object]
    ) -> None:
        self.post, self.copy, self.ended = post, copy, ended
        self.event: Event | None = None
        self.request: MPI.Request | None = None
        self.status = MPI.Status()

    def Start(self) -> None:
        """It is posted."""
        self.event, self.request = None, self.post()

    def Test(self) -> bool:
        """Whether the array holds the message."""
        assert self.request is not None
        if self.event is None:
            if not self.request.Test(self.status):
                return False
            self.event = self.copy(self.status.Get_count(MPI.BYTE))  # it may be shorter than the array
        if not self.event.Test():
            return False
        self.ended()
        return True

    def Get_status(self) -> bool:
        """Whether the message has arrived; only looks."""
        return self.event is not None or (self.request is not None and self.request.Get_status())


def started(request: MPI.Prequest) -> Any:
    """The persistent request, under way."""
    request.Start()
    return request
