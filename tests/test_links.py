"""The links: the lesson's numbers, and topologies that say which link joins two ranks and who shares a NIC."""

import subprocess
import sys

import pytest

from mpicoll.links import PRESETS, PROTOCOLS, Level, Link, Topology, in_network_allreduce, parse, preset, uniform


@pytest.mark.parametrize(
    ("name", "gigabytes", "known_by"),
    [
        ("nvlink4", 450, "900 GB/s counts both directions"),
        ("nvlink5", 900, "1800 GB/s counts both directions"),
        ("pcie5", 64, "64 GB/s, often called bidirectional"),
        ("ndr", 50, "400 Gb/s counts one direction"),
        ("xdr", 100, "800 Gb/s counts one direction"),
        ("roce400", 50, "400 Gb/s counts one direction"),
        ("roce800", 100, "800 Gb/s counts one direction"),
        ("1gbe", 0.125, "1 Gb/s counts one direction"),
        ("10gbe", 1.25, "10 Gb/s counts one direction"),
        ("100gbe", 12.5, "100 Gb/s counts one direction"),
    ],
)
def test_a_preset_has_the_rate_per_direction_and_says_what_its_number_counts(name, gigabytes, known_by):
    link = preset(name)
    assert link.bandwidth == pytest.approx(gigabytes * 1e9)
    assert link.counts.startswith(known_by)
    assert f"{gigabytes:g} GB/s per direction, per " in link.counts or name == "pcie5"
    assert 0 < link.alpha < 1e-4


def test_nvlink_joins_8_or_72_gpus():
    assert (preset("nvlink4").domain, preset("nvlink5").domain, preset("ndr").domain) == (8, 72, None)
    parse("nvlink5", 72)
    for text in "nvlink4", "nvlink4x16+ndr":
        with pytest.raises(ValueError, match=r"16 ranks on nvlink4, which joins 8"):
            parse(text, 16)


def test_the_cliff_between_nodes_is_9_like_for_like_and_18_as_the_lesson_counts():
    assert preset("nvlink4").bandwidth / preset("ndr").bandwidth == pytest.approx(9)


def test_an_unknown_link_or_protocol_is_refused_with_the_list():
    with pytest.raises(ValueError, match=r"link 'nvlink6' is unknown; there are nvlink4, .*ndr, .*10gbe.*"):
        preset("nvlink6")
    with pytest.raises(ValueError, match="protocol 'LL64' of link ndr is unknown; there are Simple, LL, LL128"):
        preset("ndr:LL64")


def test_a_protocol_changes_latency_and_bandwidth():
    for name in PRESETS:
        simple, ll, ll128 = (preset(f"{name}:{protocol}") for protocol in PROTOCOLS)
        assert ll.alpha < ll128.alpha < simple.alpha
        assert simple.beta == preset(name).beta
        assert ll.beta == pytest.approx(2 * simple.beta)
        assert ll128.beta == pytest.approx(simple.beta * 128 / 120)
    assert preset("nvlink4:LL").name == "nvlink4:LL"
    assert preset("nvlink4:LL").alpha < preset("ndr:LL").alpha


def test_a_link_of_ones_own_is_written_as_its_latency_and_rate():
    link = preset("12.5us/1.5GB/s")
    assert link.alpha == pytest.approx(12.5e-6)
    assert link.bandwidth == pytest.approx(1.5e9)
    assert parse("12.5us/1.5GB/s", 3).link(0, 2) == link


def test_switches_that_reduce_halve_the_bytes():
    link = preset("xdr-sharp")._replace(alpha=0)
    assert in_network_allreduce(link, 14e9, 64) == pytest.approx(63 / 64 * 14e9 / 100e9)
    assert in_network_allreduce(link, 14e9, 1) == 0
    assert in_network_allreduce(preset("ndr-sharp"), 0, 8) == 2 * preset("ndr").alpha
    with pytest.raises(ValueError, match=r"the switches of link xdr do not reduce; there are nvlink4-sharp, .*"):
        in_network_allreduce(preset("xdr"), 1, 8)


def names(topology):
    return [[topology.link(a, b).name for b in range(topology.size)] for a in range(topology.size)]


def test_the_text_of_a_topology_goes_from_the_inside_out():
    a, b, c = "nvlink4", "pcie5", "ndr"
    assert names(parse("nvlink4x2+pcie5x2+ndr", 5)) == [
        [a, a, b, b, c],
        [a, a, b, b, c],
        [b, b, a, a, c],
        [b, b, a, a, c],
        [c, c, c, c, a],
    ]
    assert [parse("nvlink4x2 + pcie5x2 + ndr", 5).node(rank) for rank in range(5)] == [0, 0, 0, 0, 1]


def test_nodes_can_have_unequal_numbers_of_ranks():
    topology = parse("nvlink4x3,1,2+ndr", 6)
    assert [topology.node(rank) for rank in range(6)] == [0, 0, 0, 1, 2, 2]


def test_ranks_have_their_own_nic_unless_the_text_or_the_link_says_that_they_share():
    assert parse("nvlink4x4+ndr", 8).nics(0, 4) is None
    shared = parse("nvlink4x4+1*ndr", 8)
    assert shared.nics(0, 4) == shared.nics(3, 5)
    assert shared.nics(0, 4) == shared.nics(4, 0)[::-1]
    assert shared.nics(0, 3) is None
    two = parse("nvlink4x4+2*ndr", 8)
    assert two.nics(0, 4) == two.nics(1, 5) != two.nics(2, 4)
    ethernet = parse("pcie5x2+10gbe", 4)
    assert ethernet.nics(0, 2) == ethernet.nics(1, 3)
    assert parse("10gbe", 4).nics(0, 2) is None  # every rank is a node


def test_a_link_below_the_node_can_be_shared():
    topology = parse("pcie5x2+1*pcie5x2+10gbe", 8)
    assert topology.nics(0, 2) == topology.nics(1, 3) != topology.nics(4, 6)
    assert topology.nics(0, 1) is None
    assert topology.nics(0, 4) == topology.nics(3, 7)


@pytest.mark.parametrize(
    ("text", "size", "message"),
    [
        ("", 4, "'' cannot be read; a link is NAME"),
        ("nvlink4x8+", 4, "'' cannot be read"),
        ("0*ndr", 4, r"'0\*ndr' cannot be read"),
        ("nvlink4x0+ndr", 4, "'nvlink4x0' joins 0 ranks; it is 1 or more, as in nvlink4x8"),
        ("0us/0GB/s", 4, "link '0us/0GB/s' carries nothing; its rate is above 0"),
        ("nvlink+ndr", 4, "link 'nvlink' is unknown; there are"),
        ("nvlink4+ndr", 4, "does not say how many nvlink4 joins: nvlink4x8"),
        ("nvlink4x4", 6, "nvlink4 does not join all of 6 ranks"),
        ("nvlink4x2+ndrx2", 6, "ndr does not join all of 6 ranks"),
        ("nvlink4x4,3+ndr", 8, "nvlink4 does not join all of 8 ranks, or joins more"),
        ("nvlink4x4,3+ndr", 6, "nvlink4 does not join all of 6 ranks, or joins more"),
        ("ndr", 0, "size is 0"),
        ("ndr", -1, "size is -1"),
    ],
)
def test_a_topology_that_cannot_be_read_is_refused_with_the_reason(text, size, message):
    with pytest.raises(ValueError, match=message):
        parse(text, size)


FILE = """\
links nvlink4 + pcie5 + 1*ndr   # from the inside out

rank left 0
rank right 0
rank left 1
rank left 0
"""


def test_a_file_says_where_each_rank_is(tmp_path):
    file = tmp_path / "machine"
    file.write_text(FILE)
    topology = parse(str(file), 4)
    assert names(topology)[0] == ["nvlink4", "ndr", "pcie5", "nvlink4"]
    assert [topology.node(rank) for rank in range(4)] == ["left", "right", "left", "left"]
    assert topology.nics(0, 1) == topology.nics(2, 1)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("rank right 0", "rank right", "line 4: 'rank right' is neither .* with 2 groups, from the outside in"),
        ("rank right 0", "rnk right 0", "line 4: 'rnk right 0' is neither"),
        ("rank right 0", "", "has 3 ranks; size is 4"),
        ("pcie5", "pcie9", "link 'pcie9' is unknown"),
        ("links", "# links", "line 3: 'rank left 0' is neither"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused_with_the_line(tmp_path, old, new, message):
    file = tmp_path / "machine"
    file.write_text(FILE.replace(old, new))
    with pytest.raises(ValueError, match=message):
        parse(str(file), 4)


def test_a_uniform_topology_has_one_link():
    link = Link("any", 1, 2)
    topology = uniform(link, 3)
    assert topology.size == 3
    assert topology.link(0, 2) is link
    assert topology.nics(0, 2) is None
    assert Topology([Level(link)], [()]).node(0) == 0


def test_links_need_neither_mpi_nor_numpy():
    program = "import sys, mpicoll.links; sys.exit(bool({'mpi4py', 'numpy'} & set(sys.modules)))"
    subprocess.run([sys.executable, "-c", program], check=True)
