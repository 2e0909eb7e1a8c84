"""mpicoll: collective communication and data-parallel training over MPI point-to-point messages.

Reading order: textbook.py (the lecture's ring, blocking), language.py (what an algorithm is), algorithms/ (ring, tree,
recursive_doubling), progress/ (how they run over MPI), world/ (how they are proven), collectives.py and
communicator.py (how they are called), training/ (gradient buckets and a model to use them).

The public names are imported when they are first used, because importing mpi4py.MPI starts MPI.
"""

import importlib
from typing import Any

_PUBLIC = {
    "Communicator": "communicator",
    "DistributedDataParallel": "training.ddp",
    "Reducer": "training.reducer",
    "CollectiveError": "progress",
    "CollectiveMismatch": "debug",
    "Handle": "progress",
    "PeerDied": "progress",
    "PeerLeft": "progress",
    "Plan": "progress",
    "Timeout": "progress",
    "group": "progress",
}

_MODULES = ("algorithms", "cost", "progress", "textbook", "training", "world")

__all__ = [*_PUBLIC, *_MODULES]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f".{name}", __name__)
    if name not in _PUBLIC:
        raise AttributeError(f"module 'mpicoll' has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_PUBLIC[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
