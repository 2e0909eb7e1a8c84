"""tune on a planted machine: every time is a formula, so the table that must come out is known."""

import pytest

from mpicoll import arrays, selection
from mpicoll.cost import Wire
from mpicoll.pricing import HOST
from mpicoll.rules import Rule
from mpicoll.tuner import exchange, run, summary
from mpicoll.tuning import parse
from mpicoll.tuning.file import dumps

NODE, NETWORK = Wire(2e-6, 2e-10, 8192, 6e-6, 1e-10), Wire(1e-5, 3e-10)
GAMMA, GAMMA_CACHED, SEGMENT = 1.5e-10, 4e-11, 1 << 19
BAND = 1 << 15, 1 << 18  # where a reduction is faster by way of fresh memory, into what was sent and what arrived
COLLECTIVES = ("allreduce", "allgather", "barrier")


class PlantedComm:
    """Rank 0 of ranks on these nodes. A call does nothing; what it returns tells what it would have done."""

    rank, node, local_rank = 0, 0, 0

    def __init__(self, nodes):
        self.nodes, self.size, self.links, self.rules = nodes, len(nodes), HOST, None

    def __getattr__(self, collective):
        def call(*buffers, algorithm):
            whole = max((array.nbytes for array in buffers[:2] if hasattr(array, "nbytes")), default=0)
            return collective, algorithm, whole

        return call

    def _run(self, job, sendbuf, recvbuf, neighbours, rounds, into):
        return "exchange", neighbours, sendbuf.nbytes // rounds, rounds, into

    def explain(self, collective, nbytes):
        names = tuple(selection.family(collective))
        return selection.choose(collective, nbytes, self.nodes, names, self.links, self.rules)


class PlantedMachine:
    """The Watch of a machine on which calls take what the formulas here say; now and then it is disturbed."""

    def __init__(self, comm):
        self.comm, self.now, self.asked = comm, 0.0, 0

    def time(self, batch, calls):
        self.asked += 1
        batch.fill()
        seconds = self.seconds(*batch.calls[0]()) * (20 if self.asked % 13 == 0 else 1)
        self.now += seconds * calls
        return seconds

    def seconds(self, what, algorithm, nbytes, rounds=1, into=None):
        if what == "exchange":
            return rounds * self.message(algorithm, nbytes, into)
        if what == "barrier":
            return {"recursive_doubling": 9e-6}.get(algorithm, 5e-6)
        usual = 2e-5 + nbytes * 2e-10
        if what == "reduce_scatter":
            gamma = GAMMA if nbytes > 4 << 20 else GAMMA_CACHED
            return usual + gamma * nbytes * (self.comm.size - 1) / self.comm.size
        if algorithm == "ring" and what != "allgather":  # a pipeline: away from the best segment it is slower
            usual *= 1 if self.comm.links.segment == SEGMENT else 1.4
        fast = {"allreduce": "recursive_doubling" if nbytes <= 8192 else "ring", "allgather": "ring"}
        return usual * (1 if fast.get(what, "ring") == algorithm else 1.2)

    def message(self, neighbours, nbytes, into):
        if neighbours is None:
            wire = Wire(0.0, 0.0)
        else:
            _, right = neighbours
            wire = NODE if self.comm.nodes[right] == self.comm.nodes[self.comm.rank] else NETWORK
        alpha, beta = wire.rates(nbytes)
        start, stop = arrays._copied
        fresh, better = start <= nbytes <= stop, BAND[0] <= nbytes <= BAND[1] << (into == "sent")
        return alpha + nbytes * beta + bool(into) * (1e-6 + nbytes * GAMMA) * (1 if fresh == better else 1.6)


@pytest.fixture
def tuned(monkeypatch):
    """tuned(nodes): what is found on the planted machine, and what was told meanwhile."""
    monkeypatch.setattr(arrays, "_copied", arrays._copied)

    def measure(nodes, seconds=30.0):
        comm, told = PlantedComm(nodes), []
        machine = PlantedMachine(comm)
        found = run.measure(machine, comm, COLLECTIVES, seconds, told.append)
        return found, told, machine.now

    return measure


@pytest.mark.parametrize("nodes", [(0, 0, 0, 0), (0, 0, 1, 1), (0, 1, 2, 3)], ids=["one", "two of two", "four"])
def test_the_table_is_what_was_planted(tuned, nodes):
    found, _, _ = tuned(nodes)
    entry, links = found.entry, found.entry.links
    for wire, planted, there in (
        (links.node, NODE, nodes.count(0) > 1),
        (links.network, NETWORK, len(set(nodes)) > 1),
    ):
        assert (wire is not None) == there
        if wire:
            assert wire.eager == planted.eager
            assert wire == pytest.approx(planted, rel=1e-6)
    assert links.shared is False
    assert links.gamma == pytest.approx(GAMMA)
    assert links.gamma_cached == pytest.approx(GAMMA_CACHED)
    assert links.segment == SEGMENT
    assert entry.copied == BAND
    assert entry.rules["allreduce"] == (Rule(16384, "recursive_doubling"), Rule(None, "ring"))
    assert entry.rules["allgather"] == (Rule(None, "ring"),)
    assert entry.rules["barrier"] == (Rule(None, "dissemination"),)
    assert parse(dumps({"4": entry}), "t")["4"].rules == entry.rules


def test_it_takes_the_time_that_it_is_given(tuned):
    _, told, now = tuned((0, 0, 0, 0), seconds=8.0)
    assert 6 < now < 9  # of the planted machine
    assert told[0] == "ways to reduce"
    assert "allreduce of 8 MiB" in told
    assert told[-1] == "checking the model: allgather of 16 MiB"


def test_ranks_that_share_a_way_out_are_found(tuned, monkeypatch):
    from mpicoll.tuner import wires

    original = exchange.maker

    def shared(comm, members, nbytes, **options):
        """Where the second ranks of the nodes send, too, messages take twice as long; rank 0 asks for its own ring."""
        return original(comm, members, nbytes * (2 if tuple(members) == (0, 2) and shared.both else 1), **options)

    shared.both = False
    probe = wires.Probe

    def noting(names, make):
        def made(name):
            shared.both = name is True
            return make(name)

        return probe(names, made)

    monkeypatch.setattr(exchange, "maker", shared)
    monkeypatch.setattr(wires, "Probe", noting)
    found, _, _ = tuned((0, 0, 1, 1))
    assert found.entry.links.shared is True


def test_the_summary_says_what_won_and_what_the_model_alone_would_lose(tuned):
    found, _, _ = tuned((0, 0, 0, 0))
    text = "\n".join(summary.summary(found))
    for told in (
        "same node  up to 8 KiB   2 us   5 GB/s",
        "           above 8 KiB   6 us  10 GB/s",
        "from 32 KiB to 256 KiB by way of fresh memory",
        "segments of pipelines: 512 KiB",
        "allreduce   up to 16 KiB  recursive_doubling",
        "            above 16 KiB  ring",
    ):
        assert told in text, text
    rules, times = found.entry.rules["allreduce"], found.times["allreduce"]
    times = {**times, 1 << 19: {"recursive_doubling": 3.0, "ring": 2.0}}
    told = summary.slower(rules, times, dict.fromkeys(times, "recursive_doubling"))
    assert told == ["as fast", "recursive_doubling, 1.50 x at 512 KiB"]
