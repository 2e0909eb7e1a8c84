"""Progress: the drivers that run algorithms over MPI, blocking, nonblocking and as persistent plans.

call.py     LiveCall: Isend and Irecv that really are, scratch from the communicator's pool
path.py     one generator under way: post a round, see whether it is complete
wait.py     the blocking driver, and how to wait: poll, yield the processor, sleep
engine.py   everything in flight of this process; Handle
plan.py     the recorder, and Plan, which plays what was recorded
"""

from .engine import Handle, progress, thread
from .group import group
from .path import CollectiveError
from .plan import Plan
from .wait import PeerLeft, Timeout

__all__ = ["CollectiveError", "Handle", "PeerLeft", "Plan", "Timeout", "group", "progress", "thread"]
