"""Whether the ranks that were started found each other, and what is odd about where they are; every command asks.

A launcher that another MPI, or none, listens to starts N processes that each are a world of size 1: all would do the
whole work, each believing that it is alone.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from . import runtime

VARIABLE = "MPICOLL_SINGLETON"  # 1: worlds of size 1 are meant
STRANGERS = {  # launchers, and MPIs that listen to others
    ("Open MPI's mpirun", "MPICH"),
    ("Open MPI's mpirun", "Intel MPI"),
    ("MPICH's mpirun", "Open MPI"),
}


class Place(NamedTuple):
    """Where a rank is.

    Attributes:
        host: the name of its node.
        cores: the numbers of those that it may use.
        of_all: how many the ranks of its node may use together.
        gpu: what tells its GPU from others; () if it uses none.
    """

    host: str
    cores: tuple[int, ...]
    of_all: int
    gpu: tuple[object, ...] = ()


class Remark(NamedTuple):
    """What is odd, and what to do about it."""

    what: str
    mend: str

    def __str__(self) -> str:
        return f"{self.what}; {self.mend}"


def start(command: str, gpu: tuple[object, ...] = ()) -> Any:
    """COMM_WORLD of an MPI that has started; rank 0 has told on stderr, in a line each, what is odd. Collective.

    Comes before anything else imports mpi4py.MPI, so that the MPI of another launcher need not start: some abort.

    Args:
        command: the name with which lines begin.
        gpu: see Place.

    Raises:
        ValueError: the launcher is of another MPI, or each process is a world of its own.
    """
    world = begin()
    places = world.allgather(own_place(gpu))
    if world.rank == 0:
        for remark in remarks(places):
            print(f"{command}: note: {remark}", file=sys.stderr, flush=True)
    return world


def begin() -> Any:
    """As `start`, but nothing is told."""
    import mpi4py

    if "mpi4py.MPI" not in sys.modules:
        mpi4py.rc.initialize, mpi4py.rc.finalize = False, True
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "suspicious MPI", RuntimeWarning)  # it is told below
            from mpi4py import MPI
    from mpi4py import MPI

    told = runtime.launch()  # type: ignore[no-untyped-call]
    if (told.by, MPI.get_vendor()[0]) in STRANGERS:
        raise ValueError(foreign(told, *_mpi(), sys.orig_argv))
    if not MPI.Is_initialized():
        MPI.Init_thread()
    refuse_singletons(MPI.COMM_WORLD.size)
    return MPI.COMM_WORLD


def refuse_singletons(size: int) -> None:
    """Nothing if the world of this size is what was started, or MPICOLL_SINGLETON is 1.

    Raises:
        ValueError: a launcher has started more processes, and the world has one.
    """
    told = runtime.launch()  # type: ignore[no-untyped-call]
    if size == 1 < told.size and os.environ.get(VARIABLE) != "1":
        raise ValueError(singletons(told, *_mpi(), sys.orig_argv))


def _mpi() -> tuple[str, str]:
    """Name and version of the MPI."""
    from mpi4py import MPI

    vendor, numbers = MPI.get_vendor()
    return vendor, ".".join(map(str, numbers))


def foreign(told: runtime.Launch, vendor: str, version: str, command: Sequence[str]) -> str:
    """That the launcher is of another MPI, and which one to take; arguments as below."""
    mpi = f"this Python's MPI is {vendor} {version}, which wants the mpirun that came with it"
    return f"{told.by} started {count(told.size, 'process')}, but {mpi}: {equivalent(told.size, command)}"


def singletons(told: runtime.Launch, vendor: str, version: str, command: Sequence[str]) -> str:
    """What happened to processes that each are a world of size 1, and the way out.

    Args:
        told: the launcher.
        vendor, version: of the MPI, as mpi4py names it.
        command: of this process: the interpreter and its arguments.
    """
    line = equivalent(told.size, command)
    if told.by == "torchrun":
        way_out = f"torchrun tells MPI nothing; instead: {line}"
    elif told.by == "srun":
        kind = "pmix" if vendor == "Open MPI" else "pmi2"
        way_out = (
            f"{vendor} needs srun --mpi={kind} (srun --mpi=list shows what this Slurm has); or, in the allocation "
            f"without srun: {line}"
        )
    else:
        way_out = f"they did not find each other by this launcher; {vendor} {version} has its own: {line}"
    happened = f"{told.by} started {told.size} processes, but each is an MPI world of its own, of size 1"
    return f"{happened}: {way_out} (if single processes are meant: {VARIABLE}=1)"


def equivalent(size: int, command: Sequence[str]) -> str:
    """The line that starts so many ranks of this command under the mpirun beside this Python, or on PATH."""
    beside = shutil.which("mpirun", path=str(Path(sys.executable).parent))
    words = ["..." if "\n" in word else word for word in command[1:]]
    return shlex.join([beside or "mpirun", "-np", str(size), "python", *words])


def own_place(gpu: tuple[object, ...] = ()) -> Place:
    """The Place of this rank."""
    from mpi4py import MPI

    of_all = runtime.cores_of_all()  # type: ignore[no-untyped-call]
    return Place(MPI.Get_processor_name(), tuple(sorted(os.sched_getaffinity(0))), of_all, gpu)


def remarks(places: Sequence[Place]) -> list[Remark]:
    """What is odd about the places of all ranks, by rank."""
    return [remark for ask in (oversubscribed, unequal, shared_gpus) if (remark := ask(places))]


def oversubscribed(places: Sequence[Place]) -> Remark | None:
    """Somewhere there are more ranks than cores that they may use."""

    def crowded(own: list[Place]) -> bool:
        return len(own) > len({core for place in own for core in place.cores})

    where, own = _first(places, crowded)
    if not own:
        return None
    cores, of_all = len({core for place in own for core in place.cores}), max(place.of_all for place in own)
    what = f"{len(own)} ranks share {count(cores, 'core')} on {where}"
    if cores < of_all:
        return Remark(f"{what}, which has {of_all}", "they are bound to the same ones: mpirun --bind-to none")
    most = f"start {count(cores, 'rank')} there" if len({place.host for place in places}) == 1 else "use fewer per node"
    return Remark(what, f"results are right, times mean little: {most}, or use more nodes")


def unequal(places: Sequence[Place]) -> Remark | None:
    """Nodes have unequal numbers of ranks."""
    sizes = Counter(place.host for place in places)
    most, least = sizes.most_common()[0], sizes.most_common()[-1]
    if most[1] == least[1]:
        return None
    what = f"{most[0]} has {count(most[1], 'rank')}, {least[0]} has {least[1]}"
    return Remark(what, "all wait for the fullest node: mpirun --map-by ppr:N:node (Open MPI) or -ppn N (MPICH)")


def shared_gpus(places: Sequence[Place]) -> Remark | None:
    """Somewhere more ranks use GPUs than there are GPUs."""

    def shared(own: list[Place]) -> bool:
        return len({place.gpu for place in own if place.gpu}) < sum(1 for place in own if place.gpu)

    where, own = _first(places, shared)
    if not own:
        return None
    gpus = len({place.gpu for place in own if place.gpu})
    return Remark(f"{len(own)} ranks share {count(gpus, 'GPU')} on {where}", "as fast is one rank for each GPU")


def count(number: int, what: str) -> str:
    """1 rank, 2 ranks, 3 processes."""
    return f"{number} {what}{'' if number == 1 else 'es' if what.endswith('s') else 's'}"


def _first(places: Sequence[Place], fits: Callable[[list[Place]], bool]) -> tuple[str, list[Place]]:
    """The first host whose ranks fit, named with the others like it, and its places; ("", []) if none."""
    nodes: dict[str, list[Place]] = {}
    for place in places:
        nodes.setdefault(place.host, []).append(place)
    found = [host for host, own in nodes.items() if fits(own)]
    if not found:
        return "", []
    also = f" (and {count(len(found) - 1, 'more node')})" if len(found) > 1 else ""
    return found[0] + also, nodes[found[0]]
