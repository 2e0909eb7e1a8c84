"""What the facts mean: each function looks at one thing and says whether it is good, suspicious or broken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from .. import launch
from ..launch import count
from . import software
from .facts import Facts
from .hardware import show_cores
from .network import Link

GRADES = ("good", "suspicious", "broken")
# beyond these something is odd, on any machine that is meant for this
NEAR_LATENCY, FAR_LATENCY = 50e-6, 500e-6  # s, one way
NEAR_RATE, FAR_RATE = 0.5e9, 50e6  # B/s; gigabit Ethernet has 117e6
CLOCKS = 0.1  # s
UNLIKE = 3  # times as slow as the median of the links


class Finding(NamedTuple):
    """What was looked at, one of GRADES, what is seen and means, and what mends it; "" if it is good."""

    name: str
    grade: str
    what: str
    mend: str = ""


def good(name: str, what: str) -> Finding:
    return Finding(name, "good", what)


def suspicious(name: str, what: str, mend: str) -> Finding:
    return Finding(name, "suspicious", what, mend)


def broken(name: str, what: str, mend: str) -> Finding:
    return Finding(name, "broken", what, mend)


def all_findings(facts: Facts) -> list[Finding]:
    """Everything that was looked at, in the order in which it is shown."""
    return [finding for look in LOOKS for finding in look(facts)]


def versions(facts: Facts) -> Iterator[Finding]:
    text = ", ".join(f"{name} {version}" for name, version in facts.versions.items() if name != "MPI")
    if facts.missing:
        yield suspicious("versions", f"{text}: {'; '.join(facts.missing)}", "pip install --upgrade with these names")
    else:
        yield good("versions", text)


def library(facts: Facts) -> Iterator[Finding]:
    name, path, why, mpirun = facts.library
    yield good("MPI", f"{name}, {path or 'file not seen'}: {why}")
    if not mpirun:
        yield suspicious("mpirun", "none on PATH", "activate the environment, or put the bin folder of the MPI on PATH")
    elif path and software.installation(path) != software.installation(mpirun) and not facts.launch.by:
        what = f"{mpirun} on PATH is not of the installation of {path}: ranks that it starts may not find each other"
        yield suspicious("mpirun", what, f"{software.installation(path)}/bin/mpirun, or put that on PATH first")
    else:
        yield good("mpirun", mpirun)


def world(facts: Facts) -> Iterator[Finding]:
    by, size = facts.launch
    ranks = count(len(facts.ranks), "rank")
    if not by and len(facts.ranks) == 1:
        yield good("world", f"{ranks}, no launcher: python -m alone is a world of its own; mpirun -np N makes it N")
    elif not by:
        yield good("world", f"{ranks}; the launcher does not say how many it started")
    elif size != len(facts.ranks):
        what = f"{by} started {count(size, 'process')}, the world has {ranks}"
        yield suspicious("world", what, "start one program with all ranks, unless several in one job are meant")
    else:
        yield good("world", f"{ranks}, as many as {by} started")


def threads(facts: Facts) -> Iterator[Finding]:
    names = ("MPI_THREAD_SINGLE", "MPI_THREAD_FUNNELED", "MPI_THREAD_SERIALIZED", "MPI_THREAD_MULTIPLE")
    if facts.level == 3:
        yield good("thread level", f"{names[3]}: a thread may move messages while others compute")
    else:
        what = f"{names[facts.level]}: no thread may move messages while others compute"
        yield suspicious("thread level", what, "an MPI built with MPI_THREAD_MULTIPLE, and no mpi4py.rc that asks less")


def code(facts: Facts) -> Iterator[Finding]:
    unlike = [rank for rank, own in enumerate(facts.ranks) if own.differs]
    if not unlike:
        yield good(
            "code",
            f"{software.PACKAGE}, hash {facts.digest}, and the same versions on {count(len(facts.ranks), 'rank')}",
        )
        return
    one = facts.ranks[unlike[0]].differs
    rest = f" and {len(one) - 3} more" if len(one) > 3 else ""
    others = f"; {count(len(unlike) - 1, 'more rank')} too" if len(unlike) > 1 else ""
    what = f"{facts.name(unlike[0])} is not as rank 0: {', '.join(one[:3])}{rest}{others}"
    yield broken("code", what, "the same environment and files on every node, such as a shared folder")


def nodes(facts: Facts) -> Iterator[Finding]:
    remark = launch.unequal([rank.place for rank in facts.ranks])
    sizes = Counter(rank.place.host for rank in facts.ranks)
    if remark:
        yield suspicious("nodes", *remark)
    else:
        each = count(next(iter(sizes.values())), "rank")
        yield good("nodes", f"{count(len(sizes), 'node')} of {each}: {', '.join(list(sizes)[:8])}")


def cores(facts: Facts) -> Iterator[Finding]:
    remark = launch.oversubscribed([rank.place for rank in facts.ranks])
    if remark:
        yield suspicious("cores", *remark)
        return
    for node in range(max(facts.nodes) + 1):
        own = [rank.place for rank, at in zip(facts.ranks, facts.nodes, strict=True) if at == node]
        used, of_all = {core for place in own for core in place.cores}, max(place.of_all for place in own)
        if len(used) < of_all:
            what = f"{count(len(own), 'rank')} on {own[0].host} may use only {len(used)} of {of_all} cores"
            if {len(place.cores) for place in own} == {1}:
                what += ": bound to one each, as Open MPI does with up to 2 ranks"
            yield suspicious("cores", what, "mpirun --bind-to none, or --map-by ppr:N:node:PE=CORES (Open MPI)")
            return
    if max(len(rank.place.cores) for rank in facts.ranks) == 1:
        yield good("cores", "each rank is bound to one core of its own")
    else:
        yield good(
            "cores",
            f"each rank may use {_span(len(rank.place.cores) for rank in facts.ranks)}, its share is "
            f"{_span(rank.share for rank in facts.ranks)}",
        )


def _span(numbers: Iterable[int]) -> str:
    """2, or 1 to 4, from smallest to largest."""
    found = sorted(set(numbers))
    return f"{found[0]}" if len(found) == 1 else f"{found[0]} to {found[-1]}"


def blas(facts: Facts) -> Iterator[Finding]:
    name = facts.ranks[0].blas
    if not name:
        yield good("BLAS", "NumPy's is none whose threads can be asked for; OMP_NUM_THREADS limits most")
        return
    for number, rank in enumerate(facts.ranks):
        what = (
            f"{name} uses {count(rank.threads, 'thread')} on {facts.name(number)}, whose share of cores is {rank.share}"
        )
        if rank.threads > rank.share:
            mend = f"OMP_NUM_THREADS={rank.share}, or unset what sets them"
            yield suspicious("BLAS", f"{what}: ranks get in each other's way", mend)
            return
        if 2 * rank.threads <= rank.share:
            mend = "unset OPENBLAS_NUM_THREADS, MKL_NUM_THREADS and OMP_NUM_THREADS"
            yield suspicious("BLAS", f"{what}: cores are idle", mend)
            return
    yield good("BLAS", f"{name}, threads on each rank: {_span(rank.threads for rank in facts.ranks)}")


def gpus(facts: Facts) -> Iterator[Finding]:
    using = [rank for rank in facts.ranks if rank.device]
    if not using:
        why, hidden = facts.ranks[0].no_device, max(rank.hidden for rank in facts.ranks)
        if hidden:
            yield suspicious(
                "GPU", f"the machine has {count(hidden, 'GPU')}, unused: {why}", "pip install 'mpicoll[cuda13]'"
            )
        else:
            yield good("GPU", "none in this machine")
        return
    for number, rank in enumerate(facts.ranks):
        if not rank.device:
            yield suspicious("GPU", f"{facts.name(number)} has none: {rank.no_device}", "ask for a GPU on every node")
            return
        if rank.device.cores and not set(rank.device.cores) & set(rank.place.cores):
            what = (
                f"{facts.name(number)} runs on cores {show_cores(rank.place.cores)}; its GPU {rank.device.name} is near"
            )
            what += f" {show_cores(rank.device.cores)}: copies cross between sockets"
            yield suspicious("GPU", what, "mpirun --bind-to none, or bind to the NUMA node of the GPU")
            return
    remark = launch.shared_gpus([rank.place for rank in facts.ranks])
    names = Counter(rank.device.name.partition(" ")[2] for rank in using if rank.device)
    shown = ", ".join(f"{number} ranks on {name}" for name, number in names.items())
    yield suspicious("GPU", *remark) if remark else good("GPU", f"one for each rank: {shown}")


def aware(facts: Facts) -> Iterator[Finding]:
    if isinstance(facts.aware, str):
        yield broken("CUDA-aware", facts.aware, "unset MPICOLL_CUDA")
    elif facts.aware and facts.aware[0]:
        yield good("CUDA-aware", f"MPI sends from GPU memory: {facts.aware[1]}")
    elif facts.aware:
        what = f"messages are staged through host memory: {facts.aware[1]}"
        yield suspicious("CUDA-aware", what, "an MPI that knows CUDA; scripts/gpu_env.sh makes one of wheels")


def interfaces(facts: Facts) -> Iterator[Finding]:
    if max(facts.nodes) == 0:
        return
    for number, rank in enumerate(facts.ranks):
        if not rank.interfaces:
            mend = "ip link shows them; containers may hide /sys/class/net"
            yield suspicious("network", f"no interface that is up is seen on {facts.name(number)}", mend)
            return
    sets = Counter(", ".join(device.name for device in rank.interfaces) for rank in facts.ranks)
    shown = "; ".join(f"{names} ({count(ranks, 'rank')})" if len(sets) > 1 else names for names, ranks in sets.items())
    yield good("network", f"interfaces that are up: {shown}")


def links(facts: Facts) -> Iterator[Finding]:
    near = [link for link in facts.links if link.near]
    far = [link for link in facts.links if not link.near]
    if not near and not far:
        yield good("messages", "one rank has nobody to talk to; mpirun -np 2 python -m mpicoll.doctor measures")
    share = "ranks of a node may not use shared memory (UCX_TLS, --mca btl), or wait for a core (--bind-to none; "
    share += "Open MPI with more ranks than cores: --mca mpi_yield_when_idle 1)"
    wire = "name the fast interface: --mca btl_tcp_if_include NAME (Open MPI), -iface NAME (MPICH), UCX_NET_DEVICES"
    wire += "; where only short messages are slow: --bind-to none"
    for name, some, latency, rate, mend in (
        ("in a node", near, NEAR_LATENCY, NEAR_RATE, share),
        ("between nodes", far, FAR_LATENCY, FAR_RATE, wire),
    ):
        if some:
            yield _slowest(facts, name, some, latency, rate, mend)


def _slowest(facts: Facts, name: str, links: list[Link], latency: float, rate: float, mend: str) -> Finding:
    """The finding of links of one kind, which are as good as the slowest of them."""
    ranked = sorted(links, key=lambda link: link.rate)
    slow = max(links, key=lambda link: link.latency) if ranked[0].rate > rate else ranked[0]
    what = f"{facts.name(slow.a)} and {facts.name(slow.b)}: {show(slow)}"
    what += f" (the slowest of {len(links)} pairs)" if len(links) > 1 else ""
    usual = ranked[len(ranked) // 2]
    if slow.latency > latency or slow.rate < rate:
        return suspicious(name, f"{what}; slower than {latency * 1e6:g} us or {rate / 1e9:g} GB/s is odd", mend)
    if usual.rate > UNLIKE * ranked[0].rate:
        odd = ranked[0]
        what = f"{facts.name(odd.a)} and {facts.name(odd.b)}: {show(odd)}; usual is {usual.rate / 1e9:.2g} GB/s"
        return suspicious(name, what, f"look at these nodes' cables, ports and load; {mend}")
    return good(name, what)


def show(link: Link) -> str:
    """Latency, and the rates of longer messages."""
    short, *longer = sorted(link.seconds)
    rates = ", ".join(f"{nbytes >> 10} KiB at {nbytes / link.seconds[nbytes] / 1e9:.3g} GB/s" for nbytes in longer)
    return f"{short} B take {link.seconds[short] * 1e6:.3g} us, {rates}"


def clocks(facts: Facts) -> Iterator[Finding]:
    if not facts.clocks:
        return
    worst = max(facts.clocks, key=lambda clock: abs(clock.ahead))
    host, seconds = facts.ranks[worst.rank].place.host, abs(worst.ahead)
    side = "ahead of" if worst.ahead > 0 else "behind"
    what = f"{host} is {seconds * 1e3:.3g} ms {side} {facts.ranks[0].place.host} (+- {worst.error * 1e3:.2g} ms)"
    if seconds - worst.error > CLOCKS:
        mend = f"timedatectl set-ntp true, or chronyc makestep, on {host}"
        yield suspicious("clocks", f"{what}: times in logs and of files of nodes cannot be compared", mend)
    else:
        yield good("clocks", what)


LOOKS: tuple[Callable[[Facts], Iterator[Finding]], ...] = (
    versions, library, world, threads, code, nodes, cores, blas, gpus, aware, interfaces, links, clocks,
)  # fmt: skip
