"""Training writes down what happened when: in the order in which it can have happened, on all ranks."""

import json
import time

import numpy as np
import pytest

from mpicoll import train
from mpicoll.training import loop, optimizers, timeline
from mpicoll.training.ddp import DistributedDataParallel
from mpicoll.training.models import CharMLP
from mpicoll.training.parameter_server import ParameterServer
from mpicoll.training.reducer import Reducer
from mpicoll.training.sampler import Sampler
from mpicoll.training.wire import Wire

pytestmark = [pytest.mark.mpi(min_size=1), pytest.mark.ranks(range(4))]

STEPS = timeline.LAST + 2
DELAY = 0.03  # s


def recorded(comm, net=None, optimizer=None, **options):
    """(the reducer, the steps of all ranks): a small model has learnt for some steps, with a timeline."""
    net = net or CharMLP(9, 5, 4, 16, 2)
    model = DistributedDataParallel(net, comm, 1e-3, 1e-3, **options)
    made = optimizer(model) if optimizer else optimizers.SGD(model.parameters, lr=0.1)
    line = timeline.Timeline(model, made)
    windows = np.random.default_rng(0).integers(9, size=(48, 6))
    sampler = Sampler(len(windows), 24, comm.rank, comm.size, seed=3)
    list(loop.train(comm, model, made, windows, sampler, STEPS, lambda step: 0.1))
    return model, line.gather(comm)


def in_order(step, sent=True):
    """Everything of a step's buckets happened in the order in which it can have happened; or it says what did not."""
    for bucket in step["buckets"]:
        times = [bucket["ready"]]
        for call in bucket["calls"]:
            times += [call["start"], *call["stamps"], call["done"]]
        assert times == sorted(times), bucket
        assert bool(bucket["calls"]) == sent
    starts = [bucket["calls"][0]["start"] for bucket in step["buckets"] if bucket["calls"]]
    assert starts == sorted(starts)
    waits = [t for _, since, until in step["waits"] for t in (since, until)]
    assert waits == sorted(waits)


@pytest.mark.parametrize("options", [{}, {"overlap": False}, {"algorithm": "ring"}], ids=str)
def test_every_bucket_is_ready_then_starts_then_has_its_rounds_and_is_done(comm, options):
    model, everyone = recorded(comm, **options)
    assert len(everyone) == comm.size
    assert len(model.buckets) > 2
    for steps in everyone:
        assert [step["step"] for step in steps] == list(range(STEPS - timeline.LAST + 1, STEPS + 1))
        for step in steps:
            in_order(step)
            names = [name for name, _, _ in step["spans"] if name != "drive communication"]
            assert names == ["forward", "output", "ReLU", "hidden1", "ReLU", "hidden0", "embedding", "optimizer"]
            assert len(step["waits"]) == len(step["buckets"]) == len(model.buckets)


def test_the_check_finds_a_bucket_that_starts_before_it_is_ready(comm):
    _, everyone = recorded(comm)
    step = everyone[0][0]
    step["buckets"][0]["ready"] = step["buckets"][0]["calls"][0]["done"] + 1
    with pytest.raises(AssertionError):
        in_order(step)


def test_a_wire_in_16_bits_has_two_calls_per_bucket_and_is_predicted(comm):
    _, everyone = recorded(comm, exchange=Wire("bfloat16"))
    for step in everyone[0]:
        in_order(step)
        assert [call["what"][0] for call in step["buckets"][0]["calls"]] == ["alltoall", "allgather"]
        assert step["buckets"][0]["predicted"]


def test_a_parameter_server_shows_two_waits(comm):
    def make(model):
        return model.exchange.optimizer(model, lambda parameters: optimizers.SGD(parameters, lr=0.1))

    model, everyone = recorded(comm, optimizer=make, exchange=ParameterServer())
    for step in everyone[comm.rank]:
        in_order(step)
        names = [name.partition(":")[0] for name, _, _ in step["waits"]]
        assert names == ["push"] * len(model.buckets) + ["pull"]


def test_a_delayed_bucket_shows_on_the_ranks_that_wait_for_it(comm):
    late = comm.size - 1

    class Delayed(CharMLP):
        def backward(self, grad, after_layer):
            def after(layer):
                until = time.perf_counter() + DELAY * (comm.rank == late and layer is self.layers[0])
                while time.perf_counter() < until:
                    pass
                after_layer(layer)

            super().backward(grad, after)

    _, everyone = recorded(comm, Delayed(9, 5, 4, 16, 2))
    for steps in everyone:
        for step, theirs in zip(steps, everyone[late], strict=True):
            last, other = step["buckets"][-1], theirs["buckets"][-1]
            assert last["calls"][0]["done"] > other["ready"] - DELAY / 2  # what clocks may differ by
            assert step["waits"][-1][2] > other["ready"] - DELAY / 2


def test_a_planted_offset_of_the_clocks_is_found(comm):
    found = timeline.offset(comm, lambda: time.perf_counter() + 1000.0 * comm.rank)
    assert abs(found - 1000.0 * comm.rank) < 1


def test_a_bucket_knows_how_long_finish_waited_for_it(comm):
    net = CharMLP(9, 5, 4, 16, 2)
    averaging = Reducer(comm, net.parameters, 1e-3, 1e-3)
    for _ in range(2):
        for p in reversed(net.parameters):
            averaging.mark_ready(p)
        averaging.finish()
        waited = [bucket.waited_s for bucket in averaging.buckets]
        assert min(waited) >= 0
        assert sum(waited) <= averaging.exposed_s


@pytest.mark.parametrize("sync", ["allreduce", "parameter-server"])
def test_the_command_writes_a_trace_and_says_what_kept_it(comm, tmp_path, capsys, sync):
    metrics, file = tmp_path / "m.jsonl", tmp_path / "t.json"
    words = ["--model", "mlp", "--hidden", "16", "--steps", "6", "--bucket-cap-mb", "0.01", "--global-batch", "12"]
    assert train.main([*words, "--sync", sync, "--metrics", str(metrics), "--timeline", str(file)]) == 0
    told = capsys.readouterr().out
    if comm.rank == 0:
        events = json.loads(file.read_text())["traceEvents"]
        assert {event["pid"] for event in events} == set(range(comm.size))
        assert all(event["ts"] >= 0 and event["dur"] >= 0 for event in events if event["ph"] == "X")
        assert ("pull" in {event["name"] for event in events}) == (sync == "parameter-server")
        summary = json.loads(metrics.read_text().splitlines()[-1])
        assert len(summary["bucket_waits_ms"]) == len(summary["bucket_mib"]) > 1
        assert summary["verdict"] in told
