"""The clock: its times are the closed forms' on uniform links, and contention, lateness and overlap are what they are.

Integers and fractions as alpha, beta and gamma, so that times are equal or they are not.
"""

import itertools
import random
from fractions import Fraction

import pytest

from mpicoll import cost
from mpicoll.algorithms import FAMILIES, SAME_LENGTH, ring
from mpicoll.algorithms.cut import cut, even
from mpicoll.links import Level, Link, Topology, parse, uniform
from mpicoll.world import Symbols, clock, faults, prove
from mpicoll.world.clock import Clock, Reduction, Transfer, simulate
from mpicoll.world.nothing import Nothing

ALPHA, BETA, GAMMA = 1000, Fraction(7, 3), Fraction(1, 2)
LINK = Link("link", ALPHA, BETA)
ROOTED = ("broadcast", "reduce", "gather", "scatter")
EVERY = [(collective, name) for collective, family in FAMILIES.items() for name in family]
each_algorithm = pytest.mark.parametrize(("collective", "algorithm"), EVERY)

# Reductions that are yielded beside messages: the closed forms count all of them, as if nothing were hidden.
HIDES = {("reduce_scatter", "ring"), ("allreduce", "ring"), ("reduce_scatter", "pairwise"), ("allreduce", "pairwise")}
HIDES |= {("reduce", "linear"), ("allreduce", "linear")}
# The closed form is an upper bound.
BOUND = {"double_tree", "hierarchical"}
# The closed form is also exact where ranks wait for others whose chunks are longer.
ANY_CHUNKS = {"tree", "ring", "linear", "pairwise", "exchange", "recursive_doubling"}


def roots(collective, size):
    return {0, size // 2, size - 1} if collective in ROOTED else {0}


def simulated(collective, algorithm, counts, gamma=0, **arguments):
    return simulate(collective, algorithm, counts, 8, uniform(LINK, len(counts)), gamma, **arguments).seconds


def predicted(collective, algorithm, counts, gamma=0, **arguments):
    return cost.predict(collective, algorithm, counts, 8, ALPHA, BETA, gamma, **arguments)


# The closed forms.


def compare(collective, algorithm, counts, **arguments):
    for gamma in 0, GAMMA:
        seconds = simulated(collective, algorithm, counts, gamma, **arguments)
        form = predicted(collective, algorithm, counts, gamma, **arguments)
        what = algorithm, len(counts), gamma, arguments
        if algorithm in BOUND:
            assert seconds <= form, what
        elif gamma and (collective, algorithm) in HIDES:
            assert predicted(collective, algorithm, counts, 0, **arguments) <= seconds <= form, what
        else:
            assert seconds == form, what


@each_algorithm
def test_the_simulated_time_is_the_closed_form(collective, algorithm):
    """720 elements: most sizes divide them, and so do the powers of two to which some algorithms fold the others."""
    for size in [*range(1, 11), 13, 16, 17]:
        counts = [720 // size] * size if (collective, algorithm) in SAME_LENGTH else even(720, size)
        for root in roots(collective, size):
            compare(collective, algorithm, counts, root=root)


@pytest.mark.parametrize(("collective", "algorithm"), [pair for pair in EVERY if pair[1] in ANY_CHUNKS])
def test_it_also_is_where_chunks_are_as_uneven_as_can_be(collective, algorithm):
    draw = random.Random(collective + algorithm)
    for size in range(1, 10) if (collective, algorithm) not in SAME_LENGTH else ():
        for _ in range(3):
            counts = [draw.choice((0, 1, draw.randrange(50))) for _ in range(size)]
            compare(collective, algorithm, counts, root=draw.randrange(size) if collective in ROOTED else 0)


def test_it_is_a_lower_bound_for_an_all_to_all_in_which_every_pair_has_its_own_count():
    """It is the time of the busiest rank; ranks wait for others here."""
    draw = random.Random(0)
    for size in range(1, 10):
        counts = [[draw.randrange(50) for _ in range(size)] for _ in range(size)]
        assert predicted("alltoall", "pairwise", counts) <= simulated("alltoall", "pairwise", counts)


@pytest.mark.parametrize("segments", [2, 3, 4])
@pytest.mark.parametrize("size", [2, 3, 4, 7, 8])
def test_the_ring_hides_all_reductions_but_the_last_segments(size, segments):
    """(p-1)(S alpha + m beta) + m/S gamma, as long as a segment is reduced faster than it is transferred."""
    m = 12 * 8
    expected = (size - 1) * (segments * ALPHA + m * BETA) + Fraction(m, segments) * GAMMA
    assert simulated("reduce_scatter", "ring", [12] * size, GAMMA, segments=segments) == expected
    expected += (size - 1) * (ALPHA + m * BETA)
    assert simulated("allreduce", "ring", [12] * size, GAMMA, segments=segments) == expected


@pytest.mark.parametrize("size", [2, 3, 4, 7, 8])
def test_pairwise_and_linear_hide_all_reductions_but_the_last(size):
    m, n = 12 * 8, size * 12 * 8
    pairwise = (size - 1) * (ALPHA + m * BETA) + m * GAMMA
    assert simulated("reduce_scatter", "pairwise", [12] * size, GAMMA) == pairwise
    linear = (size - 1) * (ALPHA + n * BETA) + n * GAMMA
    assert simulated("reduce", "linear", [12] * size, GAMMA) == linear


def test_reductions_that_take_longer_than_transfers_are_what_a_ring_waits_for():
    size, segments, m, slow = 5, 3, 12 * 8, 1000 * BETA
    segment = m // segments
    rounds = (size - 1) * segments
    assert segment * slow > ALPHA + segment * BETA
    expected = ALPHA + segment * BETA + rounds * segment * slow
    assert simulated("reduce_scatter", "ring", [12] * size, slow, segments=segments) == expected


@each_algorithm
def test_no_time_is_below_the_lower_bounds(collective, algorithm):
    for size in 1, 2, 5, 8:
        counts = [12] * size
        least = cost.bounds(collective, 12 * 8 * size, size, ALPHA, BETA, GAMMA)
        assert least.seconds <= simulated(collective, algorithm, counts, GAMMA)


def test_the_lower_bounds_are_those_of_the_literature():
    n, p = 800, 5
    assert cost.bounds("allreduce", n, p, 1, 1, 1) == (3, 2 * 4 * n // 5, 4 * n // 5)
    assert cost.bounds("reduce_scatter", n, p, 1, 1, 1) == (3, 4 * n // 5, 4 * n // 5)
    assert cost.bounds("reduce", n, p, 1, 1, 1) == (3, n, 4 * n // 5)
    assert cost.bounds("broadcast", n, p, 1, 1, 1) == (3, n, 0)
    for collective in "allgather", "alltoall", "gather", "scatter":
        assert cost.bounds(collective, n, p, 1, 1, 1) == (3, 4 * n // 5, 0)
    assert cost.bounds("barrier", 0, p, 1, 1, 1) == (3, 0, 0)
    assert cost.bounds("allreduce", n, 1, 1, 1, 1).seconds == 0


def test_ten_thousand_ranks_have_a_closed_form():
    seconds = cost.predict("allreduce", "ring", [1] * 10_000, 4, ALPHA, BETA, 0, segments=2)
    assert seconds == 9999 * (3 * ALPHA + 2 * 4 * BETA)


@each_algorithm
def test_what_runs_without_data_takes_the_time_of_what_is_checked(collective, algorithm):
    for size in 1, 4, 5:
        counts = [3] * size
        checked = Clock(uniform(LINK, size), Symbols(size), GAMMA, trace=True)
        prove(collective, algorithm, size, counts=counts, world=checked)
        quick = simulate(collective, algorithm, counts, 8, uniform(LINK, size), GAMMA, trace=True)
        assert quick.ends == checked.ends
        assert quick.trace == sorted(checked.trace)


# The rules, one by one, on small programs of two or three ranks.


def run(topology, program, gamma=GAMMA, starts=None, kind=Clock):
    """Every rank runs program(comm, op, x) with an array of 10 elements of 8 bytes; returns the clock."""
    world = kind(topology, Nothing(8), gamma, starts, trace=True)
    world.run(lambda comm, op: program(comm, op, world.values.array(10)))
    return world


ONE = ALPHA + 80 * BETA  # a message of x


def test_a_message_takes_alpha_and_beta_for_each_byte_once_both_sides_have_posted_it():
    def program(comm, op, x):
        yield comm.Isend(x, 1) if comm.rank == 0 else comm.Irecv(x, 0)

    assert run(uniform(LINK, 2), program).ends == [ONE, ONE]
    assert run(uniform(LINK, 2), program, starts=[5, 70]).ends == [70 + ONE] * 2
    assert run(uniform(LINK, 2), program, starts=[70, 5]).ends == [70 + ONE] * 2


def star(comm, op, x):
    """Everybody sends to rank 0 at once, and rank 0 to everybody."""
    peers = range(1, comm.size) if comm.rank == 0 else [0]
    yield tuple(item for peer in peers for item in (comm.Isend(x, peer), comm.Irecv(x, peer)))


def test_a_port_carries_one_message_at_a_time_in_each_direction():
    assert run(uniform(LINK, 4), star).ends == [3 * ONE, ONE, 2 * ONE, 3 * ONE]


def test_a_message_whose_other_port_is_busy_lets_others_pass():
    def program(comm, op, x):
        if comm.rank == 0:
            yield comm.Isend(x, 1), comm.Isend(x, 2)
        elif comm.rank == 1:
            yield comm.Irecv(x, 0), comm.Irecv(x, 3)
        else:
            yield comm.Irecv(x, 0) if comm.rank == 2 else comm.Isend(x, 1)

    assert run(uniform(LINK, 4), program, starts=[1, 0, 0, 0]).ends == [1 + 2 * ONE, 1 + 2 * ONE, 1 + ONE, ONE]


def lanes(comm, op, x, k, length=10):
    """k lanes each send a part of x to the right, and reduce what they got."""

    def lane(comm):
        part = x[: length // k]
        yield comm.Isend(part, (comm.rank + 1) % comm.size), comm.Irecv(part, (comm.rank - 1) % comm.size)
        yield op(part, part, part)

    yield tuple(lane(comm.lane(i)) for i in range(k))


def test_lanes_share_their_ranks_ports_and_its_reducer():
    """k channels cost k alphas and the same betas, and hide all reductions but the last one's."""
    for k in 1, 2, 5:
        world = run(uniform(LINK, 3), lambda comm, op, x, k=k: lanes(comm, op, x, k))
        assert world.ends == [k * ALPHA + 80 * BETA + Fraction(80, k) * GAMMA] * 3


def test_channels_cost_their_alphas_and_the_same_betas():
    for size in 3, 4, 8:
        for k in 2, 3:
            seconds = simulated("allreduce", "ring", [12] * size, segments=2, channels=k)
            assert seconds == predicted("allreduce", "ring", [12] * size, segments=2, channels=k)
            assert seconds == (size - 1) * (3 * k * ALPHA + 2 * 96 * BETA)


def test_a_rank_reduces_one_thing_after_the_other():
    def program(comm, op, x):
        yield op(x, x, x), op(x[:5], x[:5], x[:5])
        yield comm.copy(x, x), op.finish(x)

    world = run(uniform(LINK, 1), program)
    assert world.ends == [120 * GAMMA]
    assert world.trace == [Reduction(0, 80 * GAMMA, 0, 80), Reduction(80 * GAMMA, 120 * GAMMA, 0, 40)]


@pytest.mark.parametrize("gamma", [GAMMA, 100 * BETA])
def test_a_round_ends_with_the_longer_of_its_messages_and_its_reductions(gamma):
    def program(comm, op, x):
        peer = 1 - comm.rank
        yield comm.Isend(x, peer), comm.Irecv(x, peer), op(x, x, x)

    assert run(uniform(LINK, 2), program, gamma).ends == [max(ONE, 80 * gamma)] * 2


def test_the_links_of_a_kind_share_a_port_and_those_of_another_kind_have_their_own():
    def inside_and_outside(comm, op, x):
        inside, outside = comm.rank ^ 1, comm.rank ^ 2
        yield comm.Isend(x, inside), comm.Isend(x, outside), comm.Irecv(x, inside), comm.Irecv(x, outside)

    for kind, rounds in ("network", 2), ("nvlink", 1):
        levels = Level(LINK._replace(kind=kind)), Level(LINK)
        topology = Topology(levels, [(0,), (0,), (1,), (1,)])
        assert run(topology, inside_and_outside).ends == [rounds * ONE] * 4


TWO_NODES = Topology([Level(LINK), Level(LINK._replace(name="between"), 1)], [(0,), (0,), (1,), (1,)])


def across(comm, op, x):
    """Ranks 0 and 1 send to ranks 2 and 3, which are on the other node."""
    yield comm.Isend(x, comm.rank + 2) if comm.rank < 2 else comm.Irecv(x, comm.rank - 2)


def test_the_ranks_of_a_node_share_its_nic_for_their_bytes_but_not_for_their_alphas():
    world = run(TWO_NODES, across)
    assert world.ends == [ONE, ONE + 80 * BETA] * 2
    assert [(event.link, event.stop) for event in world.trace] == [("between", ONE), ("between", ONE + 80 * BETA)]


def test_the_directions_of_a_nic_do_not_disturb_each_other():
    def both_ways(comm, op, x):
        peer = (comm.rank + 2) % 4
        yield comm.Isend(x, peer), comm.Irecv(x, peer)

    assert run(TWO_NODES, both_ways).ends == run(TWO_NODES, across).ends


def test_messages_within_a_node_do_not_pass_its_nic():
    def within(comm, op, x):
        yield comm.Isend(x, comm.rank ^ 1), comm.Irecv(x, comm.rank ^ 1)

    assert run(TWO_NODES, within).ends == [ONE] * 4


# Planted faults: each of these clocks breaks one rule, and one of the statements above finds it.


class Never(list):
    """Nothing is ever busy."""

    def __setitem__(self, index, value):
        pass


class NoPorts(Clock):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._free = Never()


class NoReducer(Clock):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._reducer = Never([0] * self.size)


class ReductionsAreFree(Clock):
    def takes_time(self, reduction):
        super().takes_time(reduction)
        return False


class ReductionsComeAfterMessages(Clock):
    """No overlap: a reduction begins when all ports are free."""

    def takes_time(self, reduction):
        self._start_messages()
        rank = reduction.path.call.rank
        self._reducer[rank] = max(self._reducer[rank], *self._free)
        return super().takes_time(reduction)


class NoNic(Clock):
    def _way(self, source, dest):
        out, into, _, link = super()._way(source, dest)
        self._ways[source, dest] = found = out, into, None, link
        return found


class NicHoldsAlphas(Clock):
    def _way(self, source, dest):
        out, into, nics, link = super()._way(source, dest)
        slow = link._replace(alpha=0, beta=link.beta + Fraction(link.alpha, 80))
        self._ways[source, dest] = found = out, into, nics, slow
        return found


@pytest.mark.parametrize("algorithm", ["linear", "exchange"])
def test_a_clock_without_ports_is_found(algorithm, monkeypatch):
    assert run(uniform(LINK, 4), star, kind=NoPorts).ends == [ONE] * 4
    monkeypatch.setattr(clock, "Clock", NoPorts)
    with pytest.raises(AssertionError):
        test_the_simulated_time_is_the_closed_form("allreduce", algorithm)


@pytest.mark.parametrize("fault", [ReductionsAreFree, ReductionsComeAfterMessages])
def test_a_clock_that_overlaps_reductions_wrongly_is_found(fault, monkeypatch):
    monkeypatch.setattr(clock, "Clock", fault)
    with pytest.raises(AssertionError):
        test_the_ring_hides_all_reductions_but_the_last_segments(4, 3)


def test_a_clock_on_which_lanes_reduce_at_the_same_time_is_found():
    def program(comm, op, x):
        return lanes(comm, op, x, 5)

    slow = 100 * BETA
    assert run(uniform(LINK, 3), program, slow).ends == [ALPHA + 16 * BETA + 80 * slow] * 3
    assert run(uniform(LINK, 3), program, slow, kind=NoReducer).ends != run(uniform(LINK, 3), program, slow).ends


@pytest.mark.parametrize("fault", [NoNic, NicHoldsAlphas])
def test_a_clock_whose_nic_is_not_shared_by_the_byte_is_found(fault):
    assert run(TWO_NODES, across, kind=fault).ends != run(TWO_NODES, across).ends


# Lateness.


@each_algorithm
def test_all_ranks_late_by_the_same_time_are_late_by_that_time(collective, algorithm):
    counts = [12] * 5
    on_time = simulate(collective, algorithm, counts, 8, uniform(LINK, 5), GAMMA)
    late = simulate(collective, algorithm, counts, 8, uniform(LINK, 5), GAMMA, starts=[333] * 5)
    assert late.ends == [end + 333 for end in on_time.ends]


def test_everybody_waits_for_a_late_rank_that_has_something_to_give():
    for collective, algorithm in EVERY:
        if collective in ("allreduce", "barrier", "allgather", "alltoall", "reduce_scatter"):
            late = simulate(collective, algorithm, [12] * 6, 8, uniform(LINK, 6), starts=[0, 0, 0, 0, 10**9, 0])
            assert min(late.ends) > 10**9, (collective, algorithm)


def test_a_late_leaf_of_a_tree_holds_up_nobody():
    starts = [0] * 7 + [10**9]
    late = simulate("broadcast", "tree", [12] * 8, 8, uniform(LINK, 8), starts=starts)
    assert [end > 10**9 for end in late.ends] == [rank in (7, 6) for rank in range(8)]  # and its parent, rank 6


def test_lateness_costs_no_more_than_itself():
    draw = random.Random(1)
    for collective, algorithm in ("allreduce", "ring"), ("allgather", "ring"), ("allreduce", "tree"):
        starts = [draw.randrange(5000) for _ in range(7)]
        seconds = simulate(collective, algorithm, [12] * 7, 8, uniform(LINK, 7), starts=starts).seconds
        on_time = simulated(collective, algorithm, [12] * 7)
        assert max(starts) <= seconds <= max(starts) + on_time


# Order and the machine.


def test_a_ring_is_as_fast_as_its_slowest_link():
    slow = Link("slow", 5 * ALPHA, 9 * BETA)
    topology = Topology([Level(LINK), Level(slow)], [(0,)] * 4 + [(1,)] * 4)
    timing = simulate("allgather", "ring", [12] * 8, 8, topology)
    assert timing.seconds == cost.predict("allgather", "ring", [12] * 8, 8, slow.alpha, slow.beta, 0)


@each_algorithm
def test_times_on_mixed_links_lie_between_those_of_the_fastest_and_the_slowest(collective, algorithm):
    slow = Link("slow", 2 * ALPHA, 3 * BETA)
    topology = Topology([Level(LINK), Level(slow)], [(0,)] * 4 + [(1,)] * 4)
    seconds = simulate(collective, algorithm, [12] * 8, 8, topology).seconds
    slowest = simulate(collective, algorithm, [12] * 8, 8, uniform(slow, 8)).seconds
    assert simulated(collective, algorithm, [12] * 8) <= seconds <= slowest


def hierarchical(comm, op, x):
    """All-reduce on two pairs of ranks: reduce-scatter in the pair, all-reduce between them, all-gather in the pair."""
    pair, rail = comm.group([comm.rank & ~1, comm.rank | 1]), comm.group([comm.rank % 2, comm.rank % 2 + 2])
    halves = cut(x, 2)
    own = halves[pair.rank]
    yield from ring.reduce_scatter(pair, halves, own, op.partial, segments=2)
    yield from ring.allreduce(rail, cut(own, 2), cut(own, 2), op, segments=2)
    yield from ring.allgather(pair, own, halves)


def test_on_two_pcie_switches_the_order_of_a_ring_matters_and_two_levels_send_least_across():
    """4 GPUs, 2 on each of 2 switches, which share one slower link: 10 GB/s against 64 GB/s."""
    topology, count, n = parse("pcie5x2+1*1us/10GB/s", 4), 3_000_000, 12_000_000 * 8

    def ring_in(order):
        return simulate("allreduce", "ring", [count] * 4, 8, topology, order=order, segments=2, trace=True)

    naive, good = ring_in([0, 2, 1, 3]), ring_in([0, 1, 2, 3])
    world = Clock(topology, Nothing(8), trace=True)
    world.run(lambda comm, op: hierarchical(comm, op, world.values.array(4 * count)))
    two_levels = clock.Timing(world.ends, world.trace)
    link = "1us/10GB/s"
    # Bytes across, both directions: every hop crosses; two of four hops do; a half of n twice, out and back.
    assert naive.crossed()[link][1] == 4 * 6 * n // 4
    assert good.crossed()[link][1] == 2 * 6 * n // 4
    assert two_levels.crossed()[link][1] == 2 * n
    assert naive.seconds == pytest.approx(2 * good.seconds, rel=1e-3)
    assert good.seconds == pytest.approx(6 * n / 4 / 10e9, rel=1e-3)
    assert two_levels.seconds == pytest.approx(n / 10e9 + n / 64e9, rel=1e-3)


def test_a_ring_that_jumps_between_nodes_with_one_nic_each_pays_for_every_rank_of_a_node():
    topology = parse("nvlink4x4+1*ndr", 8)
    good = simulate("allreduce", "ring", [1_000_000] * 8, 4, topology, segments=2)
    bad = simulate("allreduce", "ring", [1_000_000] * 8, 4, topology, order=[0, 4, 1, 5, 2, 6, 3, 7], segments=2)
    assert bad.seconds == pytest.approx(4 * good.seconds, rel=0.2)
    rails = parse("nvlink4x4+ndr", 8)  # a NIC for each rank
    jumps = simulate("allreduce", "ring", [1_000_000] * 8, 4, rails, order=[0, 4, 1, 5, 2, 6, 3, 7], segments=2)
    assert jumps.seconds == pytest.approx(good.seconds, rel=0.01)


def test_parts_of_a_hierarchical_all_reduce_use_the_links_in_the_nodes_and_between_them_at_once():
    topology = parse("nvlink4x4+ndr", 16)
    nodes = [topology.node(rank) for rank in range(16)]
    whole, parts = (
        simulate("allreduce", "hierarchical", [1_000_000] * 16, 4, topology, nodes=nodes, parts=k).seconds
        for k in (1, 4)
    )
    assert parts < 0.8 * whole


# The trace, and what else is asked of a simulation.


@each_algorithm
def test_the_trace_holds_what_the_closed_form_counts_and_no_port_or_reducer_is_in_two_places(collective, algorithm):
    size, counts = 6, [12] * 6
    timing = simulate(collective, algorithm, counts, 8, uniform(LINK, size), GAMMA, trace=True)
    busy = {}
    for event in timing.trace:
        if isinstance(event, Transfer):
            for key in (event.source, "out"), (event.dest, "in"):
                busy.setdefault(key, []).append(event)
        else:
            busy.setdefault((event.rank, "reducer"), []).append(event)
    for events in busy.values():
        assert all(one.stop <= other.start for one, other in itertools.pairwise(sorted(events)))
    for rank in range(size):
        expected = cost.of(collective, algorithm, rank, counts, 8)
        sent = busy.get((rank, "out"), [])
        assert (len(sent), sum(event.nbytes for event in sent)) == expected[1:3]
        assert sum(event.nbytes for event in busy.get((rank, "reducer"), [])) == expected.reduced
    assert timing.seconds == max(event.stop for event in timing.trace)


def test_the_same_simulation_gives_the_same_times_and_trace():
    for topology in parse("pcie5x3+1*10gbe", 8), parse("nvlink4x2+ndr", 8):
        runs = [simulate("allreduce", "exchange", [12] * 8, 8, topology, 1e-12, trace=True) for _ in range(2)]
        assert runs[0] == runs[1]


def test_messages_that_do_not_meet_are_found_without_data_too():
    def circle(comm, op, x):
        yield comm.Isend(x, 1 - comm.rank)
        yield comm.Irecv(x, 1 - comm.rank)

    def lengths(comm, op, x):
        yield comm.Isend(x, 1) if comm.rank == 0 else comm.Irecv(x[:9], 0)

    with pytest.raises(faults.Deadlock, match="rank 0 -> rank 1 -> rank 0"):
        run(uniform(LINK, 2), circle)
    with pytest.raises(faults.WrongLength, match="meets rank 0, round 0: send of 10 elements"):
        run(uniform(LINK, 2), lengths)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"counts": [1, 2, 3]}, "3 counts for a topology of 4 ranks"),
        ({"order": [0, 1, 2, 2]}, "order is .*; it must have each of 4 ranks once"),
        ({"starts": [0, 1]}, "starts are .*; there must be one, 0 or later, for each of 4 ranks"),
        ({"starts": [0, 1, 2, -3]}, "starts are .*; there must be one, 0 or later, for each of 4 ranks"),
    ],
)
def test_what_does_not_fit_the_topology_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        simulate(
            **{"collective": "allreduce", "algorithm": "ring", "counts": [1] * 4, "itemsize": 8}
            | {"topology": uniform(LINK, 4)}
            | arguments
        )
