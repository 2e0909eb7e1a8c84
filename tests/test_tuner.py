"""What tune makes of times: planted ones, by a watch that does not look at a clock."""

import math

import pytest

from mpicoll.cost.model import Wire
from mpicoll.rules import Rule, Rules, binary, in_words
from mpicoll.tuner import algorithms, calls, fit, guidelines, ranges, timing


class PlantedWatch:
    """Calls that return a name take planted[name] seconds; disturbances come by `noise(measurement)`."""

    def __init__(self, planted, noise=lambda number: 1.0):
        self.planted, self.noise, self.now, self.asked = planted, noise, 0.0, []

    def time(self, batch, calls):
        name = batch.calls[0]()
        self.asked.append(name)
        seconds = self.planted[name] * self.noise(len(self.asked))
        self.now += seconds * calls
        return seconds


def named(name):
    return timing.Timed([lambda: name])


def race(planted, seconds=0.1, noise=lambda number: 1.0, **options):
    watch = PlantedWatch(planted, noise)
    return timing.race(watch, {name: named(name) for name in planted}, seconds, **options), watch


def test_a_race_gives_the_median_of_each():
    planted = {"a": 1e-5, "b": 1.1e-5, "c": 1.2e-5}
    times, _ = race(planted, noise=lambda number: 50 if number % 7 == 0 else 1)  # now and then something disturbs
    assert times == planted


def test_hopeless_candidates_are_dropped_early_and_near_ones_are_not():
    times, watch = race({"good": 1e-5, "near": 1.1e-5, "twice": 2e-5, "hopeless": 1e-2}, seconds=0.2)
    asked = [watch.asked.count(name) for name in ("good", "near", "twice", "hopeless")]
    assert asked[0] == asked[1] > asked[2] > asked[3] == 1 + timing.LAP
    assert times["hopeless"] == 1e-2  # what was seen of it is told
    _, watch = race({"good": 1e-5, "hopeless": 1e-3}, drop=False)
    assert watch.asked.count("hopeless") == watch.asked.count("good") > 1 + timing.LAP


def test_a_race_ends_in_time_but_everybody_has_run():
    times, watch = race({"slow": 2.0, "slower": 3.0}, seconds=1.0)
    assert times == {"slow": 2.0, "slower": 3.0}
    assert len(watch.asked) == 2 * (1 + timing.LAP)  # one lap; the next would last until after the end


def test_candidates_start_in_turn():
    _, watch = race({"a": 1e-3, "b": 1e-3, "c": 1e-3}, seconds=0.001)
    assert "".join(watch.asked) == "abc" + "abc" + "bca" + "cab"


def test_laps_end_in_time():
    watch = PlantedWatch({})
    ran = []
    for number in timing.laps(watch, end=10.0):
        watch.now += 3.0
        ran.append(number)
    assert ran == [0, 1, 2]  # to 9 s; a fourth would end at 12
    watch.now = 11.0
    assert len(list(timing.laps(watch, end=10.0))) == 1
    assert len(list(timing.laps(watch, end=20.0))) == 1  # nothing is measured: the watch stands still


def test_noise_is_how_far_off_the_median_of_the_best_one_may_be():
    times = iter([0, 1.0, 1.0, 1.2, 0, 1.0, 1.0, 1.2])  # a warm-up, then a lap; twice
    watch = PlantedWatch({"a": 1.0}, lambda number: next(times) if number else 1.0)
    found = timing.Race(["a"])
    found.lap(watch, {"a": named("a")})
    found.lap(watch, {"a": named("a")})
    assert found.times == {"a": 1.0}
    assert found.noise == pytest.approx(0.15 / math.sqrt(6))
    quiet = timing.Race(["a"])
    quiet.lap(PlantedWatch({"a": 1.0}), {"a": named("a")})
    assert quiet.noise == 0


@pytest.mark.parametrize(
    "wire",
    [Wire(2e-6, 1e-10), Wire(0.0, 1e-10), Wire(2e-6, fit.FASTEST), Wire(2e-6, 3e-10, 4096, 6e-6, 9e-11)],
    ids=["one regime", "no alpha", "no beta", "two regimes"],
)
def test_a_fit_finds_the_wire_of_exact_times(wire):
    lengths = [8, 64, 512, *(1 << power for power in range(10, 23))]
    found = fit.wire({n: wire.rates(n)[0] + n * wire.rates(n)[1] for n in lengths})
    assert found.eager == wire.eager
    assert found.alpha == pytest.approx(wire.alpha, rel=1e-6, abs=1e-12)
    assert found.beta == pytest.approx(wire.beta, rel=1e-6, abs=1e-16)
    assert found.alpha_long == pytest.approx(wire.alpha_long, rel=1e-6)
    assert found.beta_long == pytest.approx(wire.beta_long, rel=1e-6)


def test_a_fit_has_no_negative_part():
    alpha, beta, _ = fit.line({8: 2e-6, 64: 1.9e-6, 512: 1e-6})
    assert beta == fit.FASTEST
    assert 1e-6 < alpha < 2e-6
    alpha, beta, _ = fit.line({1000: 1e-7, 2000: 3e-7, 4000: 8e-7})
    assert alpha == 0
    assert beta > 0


def test_noise_is_no_second_regime():
    times = {8 << k: (2e-6 + (8 << k) * 1e-10) * (1.05 if k % 2 else 0.96) for k in range(16)}
    assert fit.wire(times).eager == math.inf


def test_an_error_is_the_same_in_both_directions():
    assert fit.error(1.0, 2.0) == pytest.approx(fit.error(2.0, 1.0)) == pytest.approx(1.0)
    assert fit.error(3.0, 3.0) == 0


def test_neighbouring_sizes_with_one_winner_are_one_range():
    times = {
        8: {"tree": 1.0, "ring": 4.0},
        32: {"tree": 1.0, "ring": 3.0},
        128: {"tree": 2.0, "ring": 1.0},
        512: {"tree": 3.0, "ring": 1.0},
    }
    assert ranges.rules(times, dict.fromkeys(times, 0.0)) == (Rule(64, "tree"), Rule(None, "ring"))


def test_a_tie_goes_to_who_is_good_for_longer():
    near = 1 + ranges.TIE / 2
    times = {
        8: {"a": 1.0, "b": near, "c": 2.0},
        32: {"a": near, "b": 1.0, "c": 2.0},
        128: {"a": 1.0, "b": 2.0, "c": 2.0},
        512: {"a": 3.0, "b": 3.0, "c": 1.0},
    }
    quiet = dict.fromkeys(times, 0.0)
    assert ranges.rules(times, quiet) == (Rule(256, "a"), Rule(None, "c"))
    times[32]["a"] = 1 + ranges.TIE * 2
    assert [rule.algorithm for rule in ranges.rules(times, quiet)] == ["b", "a", "c"]
    assert [rule.algorithm for rule in ranges.rules(times, {**quiet, 32: ranges.TIE * 3})] == [
        "a",
        "c",
    ]  # or it is noise
    assert "c" not in ranges.as_good(times[8], noise=5.0)  # but twice the time is no noise


def test_who_was_not_measured_at_a_size_cannot_win_there():
    assert ranges.rules({8: {"a": 1.0, "b": 1.0}, 32: {"b": 9.0}}, {8: 0.0, 32: 0.0}) == (Rule(None, "b"),)


def test_a_collective_of_one_size_has_one_rule():
    assert ranges.rules({0: {"a": 1.0, "b": 2.0}}, {0: 0.0}) == (Rule(None, "a"),)


def test_borders_lie_between_the_sizes():
    assert ranges.middle(32 << 10, 128 << 10) == 64 << 10
    for a, b in [(8, 9), (12, 24), (24, 96), (5, 6), (1000, 4000)]:
        assert a <= ranges.middle(a, b) < b


def test_the_band_of_sizes_where_fresh_memory_saves_time():
    def times(first, last):
        return {1 << k: {False: 1.0, True: 0.8 if first <= k <= last else 1.3} for k in range(10, 20)}

    def band(*places):
        return ranges.band({size: [place[size] for place in places] for size in places[0]})

    assert band(times(13, 16)) == (1 << 13, 1 << 16)
    assert band(times(11, 16), times(13, 18)) == (1 << 13, 1 << 16)  # only where it wins in both
    assert band(times(13, 16), times(20, 20)) is None
    assert band({8: {False: 1.0, True: 0.99}}) is None


def test_who_wins_over_both_places_is_as_good_on_the_mean():
    out, within = {"a": 1.0, "b": 1.2, "c": 2.0}, {"a": 3.0, "b": 2.0, "c": 4.0}
    assert ranges.over_places([out, within]) == pytest.approx({"a": 1.25, "b": 1.1, "c": 2.0})
    assert ranges.over_places([within]) == pytest.approx({"a": 1.5, "b": 1.0, "c": 2.0})


def test_what_is_measured_is_the_best_by_prediction_as_time_allows():
    predicted = {"d": 5.0, "a": 1.0, "c": 3.0, "b": 2.0, "far": 100.0}
    assert algorithms.contenders(predicted, math.inf) == ["a", "b", "c", "d"]
    assert algorithms.contenders(predicted, algorithms.RUNS * 6.0) == ["a", "b", "c"]
    assert algorithms.contenders(predicted, 0.0) == ["a", "b"]
    assert algorithms.contenders({"only": 1.0}, 0.0) == ["only"]


def test_the_usual_segment_stays_unless_another_is_better():
    def found(best, by):
        return [{s: 1.0 if s == best else 1.0 + by for s in algorithms.SEGMENTS}] * 2

    assert algorithms.best_segment(found(1 << 20, 0.02)) == 1 << 18
    assert algorithms.best_segment(found(1 << 20, 0.3)) == 1 << 20
    assert algorithms.best_segment(found(1 << 18, 0.3)) == 1 << 18


def test_sizes_are_divided_evenly_and_each_comes_once():
    for size in (2, 3, 16, 48):
        for nbytes in algorithms.sizes("allgather", size):
            assert nbytes > 0
            assert nbytes % (4 * size) == 0
        assert len(set(algorithms.sizes("allgather", size))) == len(algorithms.sizes("allgather", size))
    assert algorithms.sizes("barrier", 4) == (0,)


def test_a_rule_holds_up_to_its_border_and_not_beyond():
    rules = Rules("", {"allreduce": (Rule(64, "tree"), Rule(4096, "swing"), Rule(None, "ring"))})
    for nbytes, name in [(0, "tree"), (64, "tree"), (65, "swing"), (4096, "swing"), (4097, "ring"), (1 << 40, "ring")]:
        assert rules.find("allreduce", nbytes).algorithm == name
        assert (
            rules.range_of("allreduce", nbytes)
            == {
                "tree": "up to 64 B",
                "swing": "above 64 B, up to 4 KiB",
                "ring": "above 4 KiB",
            }[name]
        )
    assert rules.find("reduce", 8) is None


def test_ranges_in_words():
    assert in_words((Rule(65536, "a"), Rule(1 << 20, "b"), Rule(None, "c"))) == [
        "up to 64 KiB",
        "above 64 KiB, up to 1 MiB",
        "above 1 MiB",
    ]
    assert in_words((Rule(None, "a"),)) == ["any size"]
    assert [binary(n) for n in (0, 12, 1024, 3 << 20, 1 << 30)] == ["0 B", "12 B", "1 KiB", "3 MiB", "1 GiB"]


def consistent():
    names = {name for collective, parts in guidelines.GUIDELINES for name in (collective, *parts)}
    return dict.fromkeys(names, 1.0)


def test_guidelines_hold_where_everything_takes_as_long():
    lines = guidelines.check({1024: consistent()})
    assert len(lines) == len(guidelines.GUIDELINES)
    assert all(line.holds for line in lines)
    assert guidelines.text(lines)[-1].startswith(f"All {len(lines)} hold")


def test_a_planted_violation_is_found_and_told():
    slow = {**consistent(), "allgather": 2.5}
    found = [line for line in guidelines.check({1024: consistent(), 4096: slow}) if not line.holds]
    assert {(line.collective, line.parts) for line in found} == {
        ("allgather", ("gather", "broadcast")),
        ("allgather", ("alltoall",)),
    }
    assert {line.nbytes for line in found} == {4096}
    text = "\n".join(guidelines.text(guidelines.check({4096: slow})))
    assert "SLOWER" in text
    assert "the worst: allgather of 4 KiB takes 2.50 times as long as alltoall" in text
    almost = {**consistent(), "allgather": 1 + guidelines.NOISE / 2}
    assert all(line.holds for line in guidelines.check({4096: almost}))


class CountingComm:
    """One rank of four; what is called is listed with its arrays, and whether all that it sends is as it was made."""

    rank, size, nodes, node = 1, 4, (0, 0, 0, 0), 0

    def __init__(self):
        self.called = []

    def barrier(self, algorithm):
        pass

    def allreduce(self, sendbuf, recvbuf=None, op="sum", algorithm=None):
        if recvbuf is None:  # the watch's own
            return sendbuf
        self.called.append((sendbuf, recvbuf, (sendbuf == 1).all()))
        recvbuf += 1
        return recvbuf

    reduce_scatter = allreduce


@pytest.mark.parametrize("nbytes", [64, 2 << 20])
@pytest.mark.parametrize("in_place", [False, True])
def test_what_is_sent_is_written_anew_before_each_batch_and_each_call_has_arrays_of_its_own(nbytes, in_place):
    comm = CountingComm()
    watch, make = timing.Stopwatch(comm), calls.maker(comm, "allreduce", nbytes, in_place)
    one, other = make("ring"), make("tree")
    for batch in one, other:
        watch.time(batch, 6)
    rows = timing.rows_for(nbytes)
    assert len(one.calls) == rows == (4 if nbytes == 64 else 1)
    assert all(untouched for _, _, untouched in comm.called)
    assert all((sendbuf is recvbuf) == in_place for sendbuf, recvbuf, _ in comm.called)
    assert len({id(sendbuf) for sendbuf, _, _ in comm.called}) == 2 * rows  # else what is recorded of one is replayed


def test_reductions_are_in_place_as_a_collective_has_it():
    comm = CountingComm()
    (call,) = calls.maker(comm, "reduce_scatter", 1 << 20, in_place=True)("ring").calls
    call()
    ((whole, part, _),) = comm.called
    assert part.ctypes.data == whole[len(whole) // 4 :].ctypes.data
    assert len(part) == len(whole) // 4
    assert calls.places("reduce_scatter") == (False, True)
    assert calls.places("allgather") == (False,)
