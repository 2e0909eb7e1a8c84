"""A timeline is a valid trace whose slices do not overlap; the verdict says what planted figures mean."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from mpicoll.training import driving, timeline, trace
from mpicoll.training.layers import Layer, Linear
from mpicoll.training.verdict import verdict

SECONDS = {"ring": 2.0}


def call(start, stamps, done, what=("allreduce", 8, None), began=None):
    return {"what": what, "start": start, "began": began, "stamps": stamps, "done": done}


def planted():
    """Bucket 0 is ready at 3, bucket 1 at 4: it waits for its turn until 5."""
    return {
        "step": 7,
        "spans": [("forward", 0.0, 2.0), ("b", 2.0, 3.0), ("a", 3.0, 4.0), ("optimizer", 9.0, 10.0)],
        "waits": [("all-reduce: bucket 0", 5.0, 6.0), ("all-reduce: bucket 1", 6.0, 9.0)],
        "buckets": [
            {"nbytes": 8, "ready": 3.0, "calls": [call(3.0, [4.0, 5.5], 6.0)]},
            {"nbytes": 16, "ready": 4.0, "calls": [call(5.0, [], 7.0), call(7.5, [8.0], 9.0)]},
        ],
    }


def explain(collective, nbytes):
    return SimpleNamespace(algorithm="ring", predicted=SECONDS)


def predicted(step, comm=None):
    trace.predict(comm or SimpleNamespace(explain=explain), step)
    return [bucket["predicted"] for bucket in step["buckets"]]


def test_the_prediction_is_one_bucket_after_the_other_as_they_were_ready():
    assert predicted(planted()) == [(3.0, 5.0), (5.0, 9.0)]  # of the second, two calls
    late = planted()
    late["buckets"][1]["ready"] = 6.0
    assert predicted(late) == [(3.0, 5.0), (6.0, 10.0)]


def test_what_the_model_does_not_know_is_not_predicted_nor_what_follows():
    step = planted()
    step["buckets"][0]["calls"][0]["what"] = ("allreduce", 8, "mine")
    assert predicted(step) == [None, None]


def test_every_round_has_a_stamp():
    stamps = []
    assert list(timeline._stamped(iter("ab"), stamps)) == ["a", "b"]
    assert len(stamps) == 3  # before a, before b, at the end
    assert stamps == sorted(stamps)


def test_rounds_have_no_gaps():
    assert trace.rounds(call(3.0, [4.0, 5.5], 6.0)) == [("round 0", 3.0, 4.0), ("round 1", 4.0, 6.0)]
    assert trace.rounds(call(3.0, [], 6.0)) == [("round 0", 3.0, 6.0)]
    on_device = trace.rounds(call(3.0, [4.0, 5.0, 6.0], 6.5, began=4.0))
    assert [name for name, _, _ in on_device] == ["the device computes", "round 0", "round 1"]


def overlaps(events):
    """Pairs of slices of one lane that are neither apart nor one inside the other."""
    slices = [event for event in events if event["ph"] == "X"]
    found = []
    for i, a in enumerate(slices):
        for b in slices[:i]:
            if (a["pid"], a["tid"]) == (b["pid"], b["tid"]):
                first, second = sorted([a, b], key=lambda event: (event["ts"], -event["dur"]))
                end = first["ts"] + first["dur"]
                if second["ts"] < end < second["ts"] + second["dur"]:
                    found.append((first["name"], second["name"]))
    return found


def test_the_trace_is_json_with_a_process_per_rank_and_lanes_that_do_not_overlap():
    everyone = [[planted()], [planted()]]
    for (step,) in everyone:
        predicted(step)
    events = json.loads(json.dumps(trace.trace(everyone), allow_nan=False))["traceEvents"]
    assert not overlaps(events)
    for rank in (0, 1):
        mine = [event for event in events if event["pid"] == rank]
        lanes = {event["tid"]: event["args"]["name"] for event in mine if event["name"] == "thread_name"}
        names = ["computing", "waiting for communication", "predicted communication", "bucket 0", "bucket 1"]
        assert [lanes[tid] for tid in sorted(lanes)] == names
        turn = next(event for event in mine if event["name"] == "ready" and lanes[event["tid"]] == "bucket 1")
        assert (turn["ts"], turn["dur"]) == (4e6, 1e6)
        assert sum(event["name"] == "round 0" for event in mine) == 3


def test_the_check_finds_slices_that_overlap():
    step = planted()
    predicted(step)
    step["waits"][0] = ("all-reduce: bucket 0", 5.0, 7.0)
    assert overlaps(trace.trace([[step]])["traceEvents"]) == [("all-reduce: bucket 0", "all-reduce: bucket 1")]


def test_a_picture_is_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    step = planted()
    predicted(step)
    trace.save([[step]], str(tmp_path / "step.svg"))
    text = (tmp_path / "step.svg").read_text()
    assert "step 7 of rank 0: 10000.0 ms, of which it waits 4000.0 ms" in text


def test_a_file_that_cannot_be_written_is_told_before_training(tmp_path):
    with pytest.raises(ValueError, match=r"--timeline .*none"):
        trace.check(str(tmp_path / "none" / "step.json"))


def test_the_shortest_ping_tells_the_offset():
    """Rank 1 is 100 s ahead; two of the pings are slow on one way."""
    pings = [(0.0, 9.0, 10.0), (20.0, 21.0, 22.0), (30.0, 31.0, 50.0)] * (timeline.PINGS // 3)
    mine = iter([t for start, _, end in pings for t in (start + 100, end + 100)])
    theirs = iter([t for _, t, _ in pings])
    comm = SimpleNamespace(rank=1, size=2, send=lambda *a: None, recv=lambda *a: np.array([next(theirs)]))
    assert timeline.offset(comm, lambda: next(mine)) == 100.0


def linear(name):
    return Linear(name, np.ones((2, 2)), np.ones(2))


def test_layers_have_names():
    assert timeline.layer_name(linear("hidden0")) == "hidden0"
    assert timeline.layer_name(Layer()) == "Layer"


def test_buckets_and_the_thread_depend_on_the_network(monkeypatch):
    mib = 1 << 20
    assert driving.bucket_cap_mb(1, 10 * mib) == 25
    assert [driving.bucket_cap_mb(2, n * mib) for n in (1, 10, 100, 1000)] == [0.25, 0.5, 5, 25]
    monkeypatch.setattr(driving, "MPI", SimpleNamespace(Query_thread=lambda: 3, THREAD_MULTIPLE=3))
    assert [driving.by_thread(*case) for case in ((1, True), (2, True), (2, False))] == [False, True, False]
    monkeypatch.setattr(driving.MPI, "THREAD_MULTIPLE", 4)
    assert not driving.by_thread(2, True)


FIGURES = {
    "world_size": 2,
    "step_ms": 30.0,
    "backward_ms": 18.0,
    "comm_ms": 10.0,
    "exposed_comm_ms": 5.0,
    "waits_ms": {"all-reduce": 5.0},
    "bucket_waits_ms": [0.0, 0.5, 4.5],
    "bucket_mib": [1.0, 1.0, 1.0],
}
ONE = {"bucket_waits_ms": [5.0], "bucket_mib": [1.0]}
CASES = {
    "one rank: nothing": {"world_size": 1},
    "computing is the limit: the step waits 1.0 of 30.0 ms": {"exposed_comm_ms": 1.0},
    "communication is hidden but for the last bucket (4.5 of 10.0 ms)": {},
    "nothing is hidden: communication starts when backward has ended": {"overlap": False},
    "nothing is hidden: there is one bucket, full when backward ends; --bucket-cap-mb 0.25 would cut it": ONE,
    "the network is the limit, or too seldom driven (try --progress-thread): its 20.0 ms": {"comm_ms": 20.0},
    "the network is the limit: its 20.0 ms in flight": {"comm_ms": 20.0, "thread": True},
    "the server is the limit": {"waits_ms": {"push": 3.0, "pull": 2.0}},
    "the step waits 5.0 of 30.0 ms for communication, the most for bucket 0 (3.0 ms), for the last bucket (1.5 of 10.0 "
    "ms); --progress-thread": {"bucket_waits_ms": [3.0, 0.5, 1.5]},
}


@pytest.mark.parametrize("words", CASES)
def test_the_verdict_says_what_the_figures_mean(words):
    case = {"overlap": True, "thread": False, **CASES[words]}
    overlap, thread = case.pop("overlap"), case.pop("thread")
    assert verdict({**FIGURES, **case}, overlap, thread).startswith(words)
