"""All that a rank knows of itself and that can be wrong: plain data, which tests plant as they like."""

from __future__ import annotations

from typing import Any, NamedTuple

from .. import gpu, launch, runtime, topology
from . import hardware, network, software
from .hardware import Near


class Rank(NamedTuple):
    """What one rank knows of itself.

    Attributes:
        place: its host, cores and GPU, as launch.py has them.
        local_rank: among the ranks of its node, in their order.
        blas, threads: the name of NumPy's BLAS and how many threads it uses; "" and 0 if that cannot be told.
        share: of the cores; how many are its own.
        device: the number and name of its GPU and the cores near to it; None without one.
        no_device: why it has no GPU.
        hidden: how many GPUs of NVIDIA the machine has, whether or not they can be used.
        interfaces: of the network.
        differs: what is not as on rank 0, in words: files of mpicoll and versions.
    """

    place: launch.Place
    local_rank: int
    blas: str
    threads: int
    share: int
    device: Near | None
    no_device: str
    hidden: int
    interfaces: tuple[Near, ...]
    differs: tuple[str, ...]


class Facts(NamedTuple):
    """What is known of a world, on its rank 0.

    Attributes:
        ranks: the facts of all.
        launch: who started them, as the environment of rank 0 says.
        level: MPI's level of support for threads, 0 to 3.
        library, versions, missing, digest: of rank 0; see software.py.
        aware: whether messages go from GPU memory, and why; None if there is no GPU; a text if it cannot be tried.
        links, clocks: measured.
    """

    ranks: list[Rank]
    launch: runtime.Launch
    level: int
    library: software.Library
    versions: dict[str, str]
    missing: list[str]
    digest: str
    aware: tuple[bool, str] | str | None
    links: list[network.Link]
    clocks: list[network.Clock]

    @property
    def nodes(self) -> list[int]:
        """The node of every rank."""
        places = topology.number_nodes([rank.place.host for rank in self.ranks])  # type: ignore[no-untyped-call]
        return [node for node, _ in places]

    def name(self, rank: int) -> str:
        """A rank and its host, in words."""
        return f"rank {rank} on {self.ranks[rank].place.host}"


def collect(world: Any, found: Any, stage: Any) -> Facts:
    """The facts; those of rank 0 are complete. Collective.

    Args:
        found: from training.devices.find.
        stage: is called with words that say what happens now.
    """
    from mpi4py import MPI

    stage("all ranks tell where they are")
    files, versions = software.code(), software.versions()
    first_files, first_versions = world.bcast((files, versions))
    differs = software.differences(versions, first_versions) + software.differences(files, first_files, "mpicoll/")
    place = launch.own_place(found.where)
    hosts = world.allgather(place.host)
    local_rank = hosts[: world.rank].count(place.host)
    blas, threads = software.blas()
    share = runtime.share_of(len(place.cores), hosts.count(place.host), place.of_all)  # type: ignore[no-untyped-call]
    own = Rank(
        place,
        local_rank,
        blas,
        threads,
        share,
        None if found.number is None else Near(f"{found.number} ({found.name})", hardware.near_pci(gpu.address())),
        found.why,
        hardware.nvidia(),
        tuple(hardware.interfaces()),
        tuple(differs),
    )
    stage("whether MPI can send from GPU memory is tried out")
    aware = world.gather(None if found.number is None else _aware())
    ranks = world.gather(own)
    nodes = [node for node, _ in topology.number_nodes(hosts)]  # type: ignore[no-untyped-call]
    stage("messages go to and fro between two ranks of every node, and between nodes")
    links = network.links(world, nodes)
    stage("clocks are compared")
    clocks = network.clocks(world, nodes)
    return Facts(
        ranks or [own],
        runtime.launch(),  # type: ignore[no-untyped-call]
        MPI.Query_thread(),
        software.library(),
        versions,
        software.too_old(software.requirements()),
        software.digest(files),
        next((verdict for verdict in aware or () if verdict), None),
        links,
        clocks,
    )


def _aware() -> tuple[bool, str] | str:
    from .. import probe

    try:
        verdict = probe.cuda_aware()
    except ValueError as error:
        return str(error)
    return verdict.aware, verdict.why
