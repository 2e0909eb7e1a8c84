"""Messages of arrays whose memory MPI cannot be given, by way of pinned host memory.

    send       copying to the host  ->  posted  ->  done
    receive    posted  ->  copying to the device  ->  done

Long messages are cut into pieces (`call.MESSAGE_LIMIT`), each of which goes this way by itself: while one piece flies,
the next is being copied.

    sender     copy 0 | copy 1 | copy 2 | copy 3
    message           |   0    |   1    |   2    |   3
    receiver                   | copy 0 | copy 1 | copy 2 | copy 3

A route is a peer, a tag and a direction. A call has WINDOW pieces of pinned memory for each, and a message uses that of
the one WINDOW before it, once that is done. MPI matches messages in the order in which they are posted, so those of one
route are posted in the order of their calls, also those between them that need no copy.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, TypeAlias

from mpi4py import MPI

from ..arrays import Event

WINDOW = 4  # pieces: two that fly or are copied, and time to notice that they are done

Route: TypeAlias = tuple[int, int, bool]  # peer, tag, whether it is sent


class Staged:
    """A message that is posted in its turn.

    Args:
        memory: pinned, for the message; None: MPI takes the array as it is, and only the order matters.
        copy: starts the copy of so many bytes, to or from that memory.
        post: posts the message; returns its request.
        sends: whether it is sent: then the copy comes first, else last.
        before: what must be done before the memory may be used.
        waiting: the messages of the same route that are not posted yet.
    """

    __slots__ = ("before", "copy", "done", "event", "memory", "post", "request", "sends", "status", "waiting")

    def __init__(
        self,
        memory: Any,
        copy: Callable[[int], Event],
        post: Callable[[], MPI.Request],
        sends: bool,
        before: Staged | None,
        waiting: deque[Staged],
    ) -> None:
        self.memory, self.copy, self.post, self.sends = memory, copy, post, sends
        self.before, self.waiting = before, waiting
        self.event: Event | None = None
        self.request: MPI.Request | None = None
        self.status = MPI.Status()
        self.done = False

    def Start(self) -> None:
        """It is under way, or in its turn."""
        self.event, self.request, self.done = None, None, False
        self.waiting.append(self)
        self._go_on()

    def Test(self) -> bool:
        """Whether it is done; what may be posted on the route is."""
        self._go_on()
        if self.request is None:
            return False
        if self.event is None or self.sends:
            if not MPI.Request.Testall([self.request], [self.status]):
                return False
            if self.memory is not None and not self.sends:
                self.event = self.copy(self.status.Get_count(MPI.BYTE))  # it may be shorter than the array
        self.done = self.sends or self.event is None or self.event.Test()
        return self.done

    def _go_on(self) -> None:
        if self.sends and self.memory is not None and self.event is None and self._has_memory():
            self.event = self.copy(len(self.memory))
        while self.waiting and self.waiting[0]._can_be_posted():
            first = self.waiting.popleft()
            first.request = first.post()

    def _has_memory(self) -> bool:
        return self.before is None or self.before.done

    def _can_be_posted(self) -> bool:
        if self.memory is None:
            return True
        return self.event is not None and self.event.Test() if self.sends else self._has_memory()

    def Get_status(self) -> bool:
        """Whether the message has been sent or has arrived; only looks."""
        return self.done or (self.request is not None and bool(self.request.Get_status()))


def started(request: MPI.Prequest) -> Any:
    """The persistent request, under way."""
    request.Start()
    return request
