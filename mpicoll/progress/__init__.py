"""Progress: the drivers that run algorithms over MPI, blocking, nonblocking and as persistent plans.

path.py       one generator under way: post a round, see whether it is complete
wait.py       how to wait: poll, yield the processor, sleep; watch the deadline and the peers
engine.py     the blocking driver; everything nonblocking of this process; Handle
staging.py    messages of device arrays that travel by way of host memory
transport.py  what the calls of a communicator share: tags, scratch memory, goodbyes, what was started last
call.py       LiveCall: Isend and Irecv that really are
plan.py       the recorder, and Plan, which plays what was recorded
replay.py     blocking calls that come again with the same arrays, played from a plan
group.py      several calls started together
"""

from .engine import Handle, progress, thread
from .group import group
from .path import CollectiveError, PeerDied
from .plan import Plan
from .wait import PeerLeft, Timeout

__all__ = ["CollectiveError", "Handle", "PeerDied", "PeerLeft", "Plan", "Timeout", "group", "progress", "thread"]
