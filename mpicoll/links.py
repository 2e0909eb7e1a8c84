"""Links between ranks: presets with the lesson's numbers, and topologies that give the link of two ranks.

    preset("nvlink4").beta                      1 / 450e9 s/B: per direction, though NVIDIA's 900 GB/s counts both
    preset("ndr:LL128")                         the link as NCCL's protocol LL128 uses it
    topology = parse("nvlink4x8+ndr", 64)       64 ranks: 8 in each node, InfiniBand NDR between nodes
    topology.link(0, 7).name                    "nvlink4"
    topology.link(0, 8).name                    "ndr"

A message of m bytes takes alpha + m beta of its link (`world.clock`). A topology's text lists its links from the inside
out, joined by "+"; NAMExN says that N ranks, or N groups of the link before, hang together by this link, NAMEx4,3 that
the first 4 and the next 3 do; the last needs no N and joins all there are. "2*NAME" says that the ranks of one group
reach it by 2 NICs: those who share a NIC wait for one another. Links that count per node have 1, the others a NIC
for each rank.

    pcie5x2+1*pcie5x2+10gbe     2 GPUs on a PCIe switch, 2 switches in a node behind one link each, Ethernet
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple


class Link(NamedTuple):
    """What joins ranks.

    Attributes:
        alpha: seconds for a message of no bytes.
        beta: seconds for a byte, in one direction; the other direction carries as much at the same time.
        counts: what the number by which it is known counts, in words.
        kind: "nvlink", "pcie" or "network".
        domain: how many GPUs it can join, or None.
        sharp: its switches reduce, see `in_network_allreduce`.
        per_node: the ranks of a node share one, instead of having one each.
        eager, alpha_long, beta_long: messages of more than `eager` bytes take these; see `cost.Wire`.
    """

    name: str
    alpha: float
    beta: float
    counts: str = ""
    kind: str = "network"
    domain: int | None = None
    sharp: bool = False
    per_node: bool = False
    eager: float = math.inf
    alpha_long: float = 0
    beta_long: float = 0

    def rates(self, nbytes: float) -> tuple[float, float]:
        """alpha and beta of a message of so many bytes."""
        return (self.alpha, self.beta) if nbytes <= self.eager else (self.alpha_long, self.beta_long)

    @property
    def bandwidth(self) -> float:
        """B/s in one direction."""
        return 1 / self.beta

    def under(self, protocol: Protocol) -> Link:
        """The link as one of NCCL's protocols uses it."""
        beta = self.beta / float(protocol.fraction)
        return self._replace(name=f"{self.name}:{protocol.name}", alpha=protocol.alphas[self.kind], beta=beta)


class Protocol(NamedTuple):
    """How NCCL writes to a link: seconds for a message on each kind of link, and the share of its bytes that is data.

    The alphas are those of a ring's hop in NCCL's own model (hwLatencies in src/graph/tuning.cc, version 2.18 and
    later). The fractions are those of the formats; measured, LL reaches 1/4 to 1/2 and LL128 about 0.95 (Hu et al.,
    "Demystifying NCCL", arXiv 2507.04786).
    """

    name: str
    alphas: dict[str, float]
    fraction: Fraction


def _protocol(name: str, nvlink: float, pcie: float, network: float, fraction: Fraction) -> Protocol:
    return Protocol(name, {"nvlink": nvlink, "pcie": pcie, "network": network}, fraction)


PROTOCOLS = {
    protocol.name: protocol
    for protocol in (
        _protocol("Simple", 3.4e-6, 5.7e-6, 14e-6, Fraction(1)),  # waits for a fence in memory before it signals
        _protocol("LL", 0.6e-6, 1.0e-6, 2.7e-6, Fraction(4, 8)),  # 4 bytes of data and 4 of a flag in each 8
        _protocol("LL128", 1.9e-6, 2.5e-6, 4.0e-6, Fraction(120, 128)),  # 120 bytes of data and 8 of a flag in each 128
    )
}

# Where no protocol is named, alpha is the least that NCCL's model knows for a hop on a link of this kind (its protocol
# LL): 0.6, 1.0 and 2.7 microseconds. Of Ethernet, where the kernel's TCP does the work, they are usual values of a
# message one way, not a measurement: measure your own.
_NVLINK = "counts both directions; {} GB/s per direction, per GPU"
_NIC = "counts one direction: {} GB/s per direction, per GPU, with one NIC for each"
_ETHERNET = "counts one direction: {} GB/s per direction, per node, shared by its ranks"
PRESETS = {
    link.name: link
    for link in (
        Link("nvlink4", 0.6e-6, 1 / 450e9, "900 GB/s " + _NVLINK.format(450), "nvlink", domain=8),
        Link("nvlink5", 0.6e-6, 1 / 900e9, "1800 GB/s " + _NVLINK.format(900), "nvlink", domain=72),
        Link("pcie5", 1.0e-6, 1 / 64e9, "64 GB/s, often called bidirectional, is x16 per direction, per GPU", "pcie"),
        Link("ndr", 2.7e-6, 1 / 50e9, "400 Gb/s " + _NIC.format(50)),
        Link("xdr", 2.7e-6, 1 / 100e9, "800 Gb/s " + _NIC.format(100)),
        Link("roce400", 2.7e-6, 1 / 50e9, "400 Gb/s " + _NIC.format(50)),
        Link("roce800", 2.7e-6, 1 / 100e9, "800 Gb/s " + _NIC.format(100)),
        Link("1gbe", 40e-6, 8 / 1e9, "1 Gb/s " + _ETHERNET.format(0.125), per_node=True),
        Link("10gbe", 20e-6, 8 / 10e9, "10 Gb/s " + _ETHERNET.format(1.25), per_node=True),
        Link("100gbe", 10e-6, 8 / 100e9, "100 Gb/s " + _ETHERNET.format(12.5), per_node=True),
    )
}
for _name in ("nvlink4", "nvlink5", "ndr", "xdr"):  # NVLink SHARP (NCCL: NVLS), InfiniBand SHARP (NCCL: CollNet)
    PRESETS[f"{_name}-sharp"] = PRESETS[_name]._replace(name=f"{_name}-sharp", sharp=True)


_OWN = re.compile(r"(\d+(?:\.\d+)?)us/(\d+(?:\.\d+)?)GB/s")


def preset(name: str) -> Link:
    """The link of this name; "NAME:PROTOCOL" as that protocol of NCCL uses it; "20us/1.5GB/s" is a network with those.

    Raises:
        ValueError: there is no such link or protocol; the text lists those there are.
    """
    if own := _OWN.fullmatch(name):
        microseconds, rate = map(float, own.groups())
        if rate == 0:
            raise ValueError(f"link {name!r} carries nothing; its rate is above 0, as in 20us/1.5GB/s")
        return Link(name, microseconds / 1e6, 1 / (rate * 1e9), f"{rate:g} GB/s per direction, per rank")
    name, _, protocol = name.partition(":")
    if name not in PRESETS:
        raise ValueError(f"link {name!r} is unknown; there are {', '.join(PRESETS)} and your own, such as 20us/1.5GB/s")
    if not protocol:
        return PRESETS[name]
    if protocol not in PROTOCOLS:
        raise ValueError(f"protocol {protocol!r} of link {name} is unknown; there are {', '.join(PROTOCOLS)}")
    return PRESETS[name].under(PROTOCOLS[protocol])


def in_network_allreduce(link: Link, nbytes: float, size: int) -> float:
    """The seconds of an all-reduce that the switches do: each GPU sends and receives (p-1)/p n bytes once.

    Raises:
        ValueError: the link's switches do not reduce.
    """
    if not link.sharp:
        there_are = ", ".join(name for name, other in PRESETS.items() if other.sharp)
        raise ValueError(f"in_network_allreduce: the switches of link {link.name} do not reduce; there are {there_are}")
    return 2 * link.alpha + (size - 1) / size * nbytes * link.beta if size > 1 else 0  # to the switch, and back


class Level(NamedTuple):
    """A link that joins groups of ranks, each of which reaches it by so many NICs; None: every rank has its own."""

    link: Link
    nics: int | None = None


class Topology:
    """Ranks, and the links between them.

    Args:
        levels: the links from the inside out: those that join ranks, then those that join groups of ranks, ...
        places: for every rank the groups that it is in, from the outside in: one for each level but the last one.

    Attributes:
        size: the number of ranks.
    """

    def __init__(self, levels: Sequence[Level], places: Sequence[tuple[int | str, ...]]) -> None:
        self.levels, self.places, self.size = list(levels), list(places), len(places)
        members: dict[tuple[int | str, ...], list[int]] = {}
        for rank, place in enumerate(self.places):
            for depth in range(len(place) + 1):
                members.setdefault(place[:depth], []).append(rank)
        for place, ranks in members.items():
            domain = self.levels[-1 - len(place)].link.domain
            if domain is not None and len(ranks) > domain:
                name = self.levels[-1 - len(place)].link.name
                raise ValueError(f"topology: {len(ranks)} ranks on {name}, which joins {domain}; put a link around it")
        self._members = members

    def level(self, a: int, b: int) -> int:
        """Which of the levels joins two ranks: 0 is the innermost."""
        shared = 0
        for one, other in zip(self.places[a], self.places[b], strict=True):
            if one != other:
                break
            shared += 1
        return len(self.levels) - 1 - shared

    def link(self, a: int, b: int) -> Link:
        """The link between two ranks."""
        return self.levels[self.level(a, b)].link

    def nics(self, a: int, b: int) -> tuple[tuple[object, int], tuple[object, int]] | None:
        """What a message from rank a to rank b shares with others: the NIC that it leaves by and that it comes in by.

        None if every rank has a NIC of its own. Of a group's ranks, in order, the first share its first NIC, and so on.
        """
        level = self.level(a, b)
        if level == 0 or self.levels[level].nics is None:
            return None
        return self._nic(a, level), self._nic(b, level)

    def node(self, rank: int) -> int | str:
        """The outermost group that the rank is in; 0 if there is only one."""
        return self.places[rank][0] if self.places[rank] else 0

    def _nic(self, rank: int, level: int) -> tuple[object, int]:
        group = self.places[rank][: len(self.levels) - level]
        ranks = self._members[group]
        return group, ranks.index(rank) * (self.levels[level].nics or 1) // len(ranks)


def uniform(link: Link, size: int) -> Topology:
    """All ranks are joined by one link, and each has its own port."""
    return Topology([Level(link)], [()] * size)


def parse(text: str, size: int) -> Topology:
    """The topology of `size` ranks that the text describes, or the file of that name; see this module.

    Raises:
        ValueError: it cannot be read or does not fit `size` ranks.
    """
    if size < 1:
        raise ValueError(f"topology {text!r}: size is {size}; there must be a rank")
    if Path(text).is_file():
        return _read(text, size)
    terms = [_term(text, term) for term in text.split("+")]
    for level, lengths in terms[:-1]:
        if lengths is None:
            raise ValueError(f"topology {text!r} does not say how many {level.link.name} joins: {level.link.name}x8")
    groups = [[rank] for rank in range(size)]
    places: list[tuple[int | str, ...]] = [()] * size
    for i, (level, lengths) in enumerate(terms):
        groups = _join(groups, lengths or [len(groups)])
        if not groups or (i == len(terms) - 1 and len(groups) > 1):
            raise ValueError(f"topology {text!r}: {level.link.name} does not join all of {size} ranks, or joins more")
        if len(terms) - 1 > i:
            for number, group in enumerate(groups):
                for rank in group:
                    places[rank] = (number, *places[rank])
    return Topology([level for level, _ in terms], places)


_TERM = re.compile(r"(?:([1-9]\d*)\*)?([^\s*]+?)(?:x(\d+(?:,\d+)*))?")  # 2*ndrx4,3: NICs, name, lengths


def _term(text: str, term: str) -> tuple[Level, list[int] | None]:
    """A link of the text, and how many it joins: one number for all its groups, or one for each."""
    match = _TERM.fullmatch(term.strip())
    if match is None:
        raise ValueError(f"topology {text!r}: {term.strip()!r} cannot be read; a link is NAME, NAMEx8, or 2*NAMEx8")
    nics, name, lengths = match.groups()
    if lengths and 0 in map(int, lengths.split(",")):
        raise ValueError(f"topology {text!r}: {term.strip()!r} joins 0 ranks; it is 1 or more, as in {name}x8")
    link = preset(name)
    level = Level(link, int(nics) if nics else 1 if link.per_node else None)
    return level, [int(length) for length in lengths.split(",")] if lengths else None


def _join(groups: Sequence[list[int]], lengths: Sequence[int]) -> list[list[int]]:
    """So many groups each become one, the last of them of what is left; none if several lengths do not add up."""
    if len(lengths) > 1 and sum(lengths) != len(groups):
        return []
    rest = iter(groups)
    joined = ([rank for group in itertools.islice(rest, n) for rank in group] for n in itertools.cycle(lengths))
    return list(itertools.takewhile(bool, joined))


def _read(path: str, size: int) -> Topology:
    """A file's topology: a line "links A + B" from the inside out, and for each rank "rank NODE SWITCH ..."."""
    lines = [line.partition("#")[0].split() for line in Path(path).read_text().splitlines()]
    levels = [
        _term(path, term)[0] for words in lines if words[:1] == ["links"] for term in " ".join(words[1:]).split("+")
    ]
    places = [tuple(words[1:]) for words in lines if words[:1] == ["rank"]]
    for number, words in enumerate(lines, 1):
        if words and (words[0] not in ("links", "rank") or (words[0] == "rank" and len(words) != len(levels))):
            raise ValueError(
                f"topology {path}, line {number}: {' '.join(words)!r} is neither 'links A + B' nor 'rank' "
                f"with {len(levels) - 1} groups, from the outside in"
            )
    if len(places) != size:
        raise ValueError(f"topology {path} has {len(places)} ranks; size is {size}")
    return Topology(levels, places)
