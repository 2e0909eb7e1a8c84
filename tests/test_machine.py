"""Ranks in nodes: walks against the clock's trace, bounds and the choice against simulations of every algorithm."""

import collections
import itertools
from fractions import Fraction

import pytest

from mpicoll import cost, pricing
from mpicoll.algorithms import FAMILIES, SAME_LENGTH
from mpicoll.algorithms.cut import even
from mpicoll.cost import Machine, Wire, walk
from mpicoll.links import PRESETS
from mpicoll.pricing import across, options_of, rounded
from mpicoll.selection import DEVICE, HOST, choose, family
from mpicoll.world.clock import Transfer, simulate
from mpicoll.world.nothing import Length
from mpicoll.world.world import Rank

each_algorithm = pytest.mark.parametrize(
    ("collective", "algorithm"), [(collective, name) for collective, family in FAMILIES.items() for name in family]
)
ROOTED = ("broadcast", "reduce", "gather", "scatter")
NODE = Wire(Fraction(4), Fraction(1, 10))
NETWORK = Wire(Fraction(24), Fraction(8, 10), eager=100, alpha_long=Fraction(90), beta_long=Fraction(3, 10))


def layouts(size):
    """Equal nodes, unequal ones, round robin, one each, one for all."""
    half = -(-size // 2)
    return {
        tuple(rank // half for rank in range(size)),
        tuple(int(rank > 0) + int(rank > 3) for rank in range(size)),
        tuple(rank % 3 for rank in range(size)),
        tuple(range(size)),
        (0,) * size,
    }


def counts_of(collective, algorithm, size):
    """Even and, if the algorithm takes them, uneven counts; some are 0."""
    yield [7] * size
    if (collective, algorithm) not in SAME_LENGTH:
        yield [5 * rank % 7 * 9 for rank in range(size)]


def traced(timing, size):
    """found[rank][level]: the messages and bytes that the trace says the rank sent."""
    found = [[[0, 0], [0, 0]] for _ in range(size)]
    for event in timing.trace:
        if isinstance(event, Transfer):
            sent = found[event.source][event.link == "network"]
            sent[0] += 1
            sent[1] += event.nbytes
    return found


def differences(collective, algorithm):
    """The cases in which walks and trace differ, of sizes 1 to 9 on all layouts."""
    for size in range(1, 10):
        root = size // 2 if collective in ROOTED else 0
        both = itertools.cycle(counts_of(collective, algorithm, size))
        for nodes, counts in zip(sorted(layouts(size)), both, strict=False):
            topology = Machine(nodes, NODE, NETWORK, True, 0).topology
            options = {"nodes": nodes} if algorithm == "hierarchical" else {}
            timing = simulate(collective, algorithm, counts, 8, topology, 0, root, trace=True, **options)
            crossed = cost.crossed(topology, collective, algorithm, counts, 8, root, **options)
            if [[[*level[:2]] for level in levels] for levels in crossed] != traced(timing, size):
                yield nodes, counts


@each_algorithm
def test_a_rank_walked_alone_sends_what_the_clock_sees_it_send(collective, algorithm):
    assert not list(differences(collective, algorithm))


def test_a_walk_with_other_peers_is_found(monkeypatch):
    class Shifted(walk._Notes):
        def isend(self, array, peer, number):
            return super().isend(array, (peer + 1) % self.comm.size, number)

    monkeypatch.setattr(walk, "_Notes", Shifted)
    assert list(differences("allreduce", "ring"))


def test_options_and_lanes_are_walked_too():
    nodes = (0, 0, 0, 1, 1, 1)
    for algorithm, options in (
        ("ring", {"segments": 3, "channels": 2}),
        ("tree", {"channels": 3}),
        ("hierarchical", {"nodes": nodes, "parts": 3}),
    ):
        topology = Machine(nodes, NODE, NETWORK, False, 0).topology
        timing = simulate("allreduce", algorithm, [7] * 6, 8, topology, trace=True, **options)
        crossed = cost.crossed(topology, "allreduce", algorithm, [7] * 6, 8, **options)
        assert [[[*level[:2]] for level in levels] for levels in crossed] == traced(timing, 6)


@each_algorithm
def test_the_bound_is_never_more_than_the_simulated_time(collective, algorithm):
    for size in 1, 2, 7:
        for nodes, shared in itertools.product(layouts(size), (True, False)):
            machine = Machine(nodes, NODE, NETWORK, shared, Fraction(1, 7))
            root = size // 2 if collective in ROOTED else 0
            options = {"nodes": nodes} if algorithm == "hierarchical" else {}
            for counts in counts_of(collective, algorithm, size):
                bound = machine.bound(collective, algorithm, counts, 8, root, **options)
                assert bound.seconds <= machine.simulate(collective, algorithm, counts, 8, root, **options)


def test_the_bytes_of_a_node_pass_its_shared_way_out_one_after_the_other():
    n, shared = 600, Machine((0, 0, 0, 1, 1, 1), Wire(1, 0), Wire(1, 2), True, 0)
    call = "alltoall", "pairwise", [n] * 6, 1
    assert shared.bound(*call).seconds == 9 * n * 2
    assert 9 * n * 2 <= shared.simulate(*call) <= 9 * n * 2 + 6
    own = shared._replace(shared=False)
    assert own.bound(*call).seconds == 5 * (1 + n * 2)  # in every round a message crosses, out or in
    assert own.simulate(*call) < 9 * n * 2


# Two regimes.


def test_messages_up_to_eager_bytes_and_longer_ones_are_priced_apart():
    wire = Wire(5, 1, eager=100, alpha_long=50, beta_long=Fraction(1, 2))
    for nbytes, seconds in (0, 5), (100, 105), (101, 50 + Fraction(101, 2)), (400, 250):
        machine = Machine((0, 1), wire, wire, False, 0)
        assert machine.simulate("broadcast", "tree", [nbytes, 0], 1) == seconds
        assert machine.bound("broadcast", "tree", [nbytes, 0], 1).seconds == seconds
        assert cost.time_on(cost.of("broadcast", "tree", 0, [nbytes, 0], 1), wire, 0) == seconds
        assert cost.crossed(machine.topology, "broadcast", "tree", [nbytes, 0], 1)[0][1] == (1, nbytes, seconds)


def test_on_one_node_the_mean_message_decides_the_regime():
    links = HOST._replace(node=Wire(1e-6, 1e-9, eager=8192, alpha_long=1e-4, beta_long=1e-10))
    for nbytes in 8, 1 << 14, 1 << 15, 1 << 24:  # of 2 ranks, a ring's messages are of a quarter and a half
        for name in FAMILIES["allreduce"]:
            (one, *_) = cost.busiest("allreduce", name, even(nbytes, 2), 1)
            long = one.port_bytes > 8192 * one.port_messages
            rates = (1e-4, 1e-10) if long else (1e-6, 1e-9)
            expected = cost.predict("allreduce", name, even(nbytes, 2), 1, *rates, links.rate(nbytes))
            assert links.predict("allreduce", name, nbytes, 2) == expected


# The choice.

NETWORKS = {
    "10gbe": (Wire(24e-6, 8e-10), True),
    "1gbe": (Wire(40e-6, 8e-9), True),
    "rails": (Wire(6e-6, 4e-11), False),
    "eager": (Wire(24e-6, 1e-9, 8192, 80e-6, 3e-10), False),
}
PLACES = [
    *(tuple(rank // m for rank in range(q * m)) for q in (2, 3, 4) for m in (1, 2, 4)),
    *(tuple(rank % q for rank in range(q * m)) for q, m in ((2, 2), (3, 2), (2, 4), (4, 3))),
    (0, 0, 0, 1),
    (0, 1, 1),
    (0, 0, 0, 0, 1, 1, 2),
    (0, 1, 0, 0, 2, 1),
]


def simulated(collective, nbytes, nodes, links):
    """The simulated time of every algorithm for this size, not rounded, with ranks counted node by node."""
    nodes = tuple(sorted(nodes))
    machine, size = links.machine(nodes, nbytes), len(nodes)
    for name in family(collective):
        whole = -(-nbytes // size) * size if (collective, name) in SAME_LENGTH else nbytes
        options = options_of(collective, name, nbytes, nodes, links)
        yield name, machine.simulate(collective, name, even(whole, size), 1, **options)


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("nbytes", [8, 3000, 48_000, 700_000, 16 << 20])
def test_across_nodes_the_choice_takes_at_most_1_3_times_as_long_as_the_best(nbytes, network):
    wire, shared = NETWORKS[network]
    links = HOST._replace(network=wire, shared=shared)
    for nodes in PLACES[(len(network) + nbytes) % 3 :: 3] if nbytes < 1 << 20 else PLACES[::4]:
        times = dict(simulated("allreduce", nbytes, nodes, links))
        taken = choose("allreduce", nbytes, nodes, tuple(times), links).algorithm
        assert times[taken] <= 1.3 * min(times.values())


@pytest.mark.parametrize("collective", FAMILIES)
def test_so_it_does_for_every_collective(collective):
    for links, nodes, nbytes in itertools.product((HOST, DEVICE), ((0, 0, 1, 1), (0, 1, 2, 0, 1, 2)), (8, 100_000)):
        times = dict(simulated(collective, nbytes, nodes, links))
        taken = choose(collective, nbytes, nodes, tuple(times), links).algorithm
        assert times[taken] <= 1.3 * min(times.values())


def test_a_predicted_time_is_simulated_or_a_bound():
    nodes, allowed = (0, 0, 0, 1, 1, 1), tuple(FAMILIES["allreduce"])
    for nbytes in 8, 1 << 16, 1 << 22:
        choice = choose("allreduce", nbytes, nodes, allowed, HOST)
        assert choice.least
        assert choice.algorithm not in choice.least
        for name, seconds in simulated("allreduce", nbytes, nodes, HOST):
            if name in choice.least:
                assert choice.predicted[choice.algorithm] < choice.predicted[name] <= seconds * (1 + 1e-12)
            else:
                assert choice.predicted[name] == seconds
        lines = dict(line.split(maxsplit=1) for line in str(choice).splitlines()[1:])
        assert {name for name, text in lines.items() if text.endswith("us predicted, at least")} == choice.least


def test_two_levels_win_when_large_and_few_rounds_when_small():
    network = PRESETS["1gbe"]
    slow = HOST._replace(network=Wire(network.alpha, network.beta), shared=True)
    nodes, allowed = (0, 0, 1, 1), tuple(FAMILIES["allreduce"])
    assert choose("allreduce", 16 << 20, nodes, allowed, slow).algorithm == "hierarchical"
    small = choose("allreduce", 8, nodes, allowed, slow)
    assert small.algorithm == "recursive_doubling"
    assert "of 4" not in small.reason
    assert "on 4 ranks in 2 nodes" in small.reason
    assert choose("allreduce", 8, nodes, ("ring", "tree"), slow).algorithm == "tree"


def test_sizes_are_rounded_to_three_digits():
    assert [rounded(n) for n in (0, 1, 7, 8, 9, 11, 48_000, 1 << 24, 15 << 20)] == [
        0, 1, 7, 8, 10, 12, 49_152, 1 << 24, 1 << 24,
    ]  # fmt: skip
    for n in range(1, 5000):
        assert abs(rounded(n) - n) <= n / 8
    nodes, allowed = (0, 1, 1), tuple(FAMILIES["allreduce"])
    one, other = (choose("allreduce", n, nodes, allowed, HOST) for n in (1 << 20, (1 << 20) + 1))
    assert one.predicted == other.predicted
    assert "for 1048577 bytes (rounded to 1048576) on 3 ranks in 2 nodes" in other.reason


@pytest.fixture
def fresh():
    """Nothing is known from other tests, nor kept for them."""
    for cached in across, choose:
        cached.cache_clear()
    yield
    for cached in across, choose:
        cached.cache_clear()


def in_nodes(count, ranks):
    return tuple(rank // ranks for rank in range(count * ranks))


@pytest.mark.parametrize("collective", ["alltoall", "allgather", "reduce_scatter", "allreduce"])
def test_the_work_of_a_simulation_is_what_it_does(collective, monkeypatch):
    done = collections.Counter()

    def counted(kind, method, what):
        of = getattr(kind, method)

        def call(*arguments):
            done[what] += 1
            return of(*arguments)

        monkeypatch.setattr(kind, method, call)

    for method, what in ("isend", "messages"), ("copy", "made"), ("reduce", "made"):
        counted(Rank, method, what)
    counted(Length, "__getitem__", "made")
    for algorithm in family(collective):
        job = pricing.Job(collective, algorithm, 4096, in_nodes(4, 4), HOST)
        bound = job.bound()
        done.clear()  # the walks make views, too
        job.simulate()
        assert done["messages"] / 2 <= bound.messages <= 8 * done["messages"]
        assert done["made"] / 2 <= bound.made <= 8 * done["made"]


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize(("collective", "nbytes"), [("alltoall", 1024), ("allreduce", 1 << 20), ("broadcast", 8)])
def test_the_first_call_of_a_large_job_simulates_small_ones(collective, nbytes, monkeypatch):
    asked = []

    def simulate(job):
        asked.append(job.work(job.bound()))
        return 1.0

    monkeypatch.setattr(pricing.Job, "simulate", simulate)
    for nodes in in_nodes(8, 8), in_nodes(128, 8), in_nodes(2, 200):
        asked.clear()
        choose(collective, nbytes, nodes, tuple(family(collective)), HOST)
        assert asked
        assert max(asked) <= pricing.WORK


SCALED = [
    *((name, n) for name in ("ring", "hierarchical", "recursive_doubling", "pairwise") for n in (8, 1 << 16, 32 << 20)),
    ("tree", 8),
    ("tree", 32 << 20),
]


@pytest.mark.parametrize(("algorithm", "nbytes"), SCALED)
def test_smaller_jobs_tell_what_a_large_one_takes(algorithm, nbytes, monkeypatch):
    monkeypatch.setattr(pricing, "WORK", 6000)
    for nodes in in_nodes(8, 4), in_nodes(4, 8), in_nodes(32, 1):
        job = pricing.Job("allreduce", algorithm, nbytes, nodes, HOST)
        assert 0.75 < job.scaled(job.bound()) / job.simulate() < 1.5


def test_a_job_shrinks_to_two_ranks():
    for nodes in in_nodes(8, 4), in_nodes(3, 1), in_nodes(2, 5), (0, 1, 1, 1), (0, 1, 0, 2, 0):
        job = pricing.Job("allreduce", "ring", 32 << 20, nodes, HOST)
        sizes = [len(job.halved(times).nodes) for times in range(8)]
        assert sizes == sorted(sizes, reverse=True)
        assert job.halved(8).nodes == (0, 1)
        assert job.halved(60).nbytes <= job.halved(30).nbytes < 32 << 20


@pytest.mark.usefixtures("fresh")
def test_no_bound_wins_or_lowers_what_others_are_held_against(monkeypatch):
    names, nodes = tuple(family("broadcast")), in_nodes(16, 8)
    choice = choose("broadcast", 64 << 20, nodes, names, HOST)
    job = pricing.Job("broadcast", choice.algorithm, 64 << 20, nodes, HOST)
    assert choice.algorithm in choice.scaled
    assert choice.predicted[choice.algorithm] > 1.02 * job.bound().seconds
    assert "; the time is scaled from a smaller job's" in choice.reason
    assert any(line.endswith("us predicted, from a smaller job") for line in str(choice).splitlines())
    across.cache_clear()
    monkeypatch.setattr(pricing, "WORK", 1)
    prices = across("allreduce", 1 << 16, (0, 0, 1), tuple(family("allreduce")), HOST)
    best = min(prices.seconds, key=prices.seconds.__getitem__)
    assert best in prices.scaled
    assert all(prices.seconds[name] > pricing.CLOSE * prices.seconds[best] for name in prices.least)


def test_of_times_that_are_close_the_one_with_the_fewest_partners_is_taken():
    nodes, names = (0, 1, 2, 3), tuple(family("allreduce"))
    partners = across("allreduce", 16 << 20, nodes, names, HOST).partners
    assert [partners[name] for name in ("ring", "hierarchical", "recursive_doubling", "pairwise")] == [1, 1, 2, 3]
    choice = choose("allreduce", 16 << 20, nodes, names, HOST)
    assert choice.algorithm == "ring"
    assert choice.predicted["pairwise"] < choice.predicted["ring"]
    assert choice.reason.startswith(
        "within 15% of the shortest predicted time for 16777216 bytes on 4 ranks in 4 nodes"
    )
    assert "that of pairwise, in which a node sends to or hears from 3 others, not 1" in choice.reason
    assert choose("allreduce", 16 << 20, nodes, ("pairwise",), HOST).algorithm == "pairwise"
    small = choose("allreduce", 8, nodes, names, HOST)
    assert small.predicted["ring"] > pricing.CLOSE * small.predicted[small.algorithm]
    assert small.algorithm == "recursive_doubling"


@pytest.mark.parametrize("network", NETWORKS)
def test_as_many_parts_are_taken_as_are_nearly_the_best(network):
    wire, shared = NETWORKS[network]
    links = HOST._replace(network=wire, shared=shared)
    for nodes, n in itertools.product((in_nodes(2, 2), in_nodes(2, 8), in_nodes(4, 2)), (1 << 12, 1 << 20, 16 << 20)):
        machine, call = links.machine(nodes, n), ("allreduce", "hierarchical", even(n, len(nodes)), 1)
        times = [machine.simulate(*call, nodes=nodes, parts=parts) for parts in (1, 2, 4, 8, 16)]
        taken = pricing.Job("allreduce", "hierarchical", n, nodes, links).simulate()
        assert taken <= 1.25 * min(times)
    assert pricing.parts(16 << 20, (0, 1, 2), links) == pricing.parts(16 << 20, (0, 0), links) == 1


@pytest.mark.parametrize("collective", ["allreduce", "broadcast"])
def test_a_larger_buffer_takes_as_many_times_as_long(collective):
    for nodes in (0, 0, 1, 1), (0, 1, 2):
        large = 8 << 20
        one, more = (choose(collective, n, nodes, tuple(family(collective)), HOST) for n in (large, 4 * large))
        assert more.predicted == pytest.approx({name: 4 * seconds for name, seconds in one.predicted.items()})
        times = dict(simulated(collective, 4 * large, nodes, HOST))
        assert times[more.algorithm] <= 1.3 * min(times.values())
        assert more.predicted[more.algorithm] == pytest.approx(times[more.algorithm], rel=0.1)


def test_a_large_job_is_chosen_for():
    nodes = tuple(rank // 8 for rank in range(64))
    for nbytes, expected in (8, "recursive_doubling"), (16 << 20, "hierarchical"):
        assert choose("allreduce", nbytes, nodes, tuple(FAMILIES["allreduce"]), HOST).algorithm == expected
