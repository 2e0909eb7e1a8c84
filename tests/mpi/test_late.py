"""On a device whose work ends late, nothing is touched too early: every collective, algorithm and form; see late.py."""

import gc
import itertools
import time
import weakref

import numpy as np
import pytest
from device_array import DeviceArray
from forms import FORMS
from late import POISON, Device, LateArrays, TooEarly, Work, watch
from mpi4py import MPI
from test_lent import Tensor
from test_matrix import CASES, FLOAT8, REDUCING

import mpicoll
from mpicoll import gpu
from mpicoll.progress import call as call_module
from mpicoll.progress.staging import WINDOW, Staged
from mpicoll.training import layers, loop
from mpicoll.training.data import Text
from mpicoll.training.models import CharMLP
from mpicoll.training.optimizers import AdamW
from mpicoll.training.replicas import on_host
from mpicoll.training.sampler import Sampler

# up to three ranks on one MPI, two on others: what is tested here is not the MPI
pytestmark = [pytest.mark.mpi, pytest.mark.ranks(range(4 if "MPICH" in MPI.get_vendor() else 3))]

WAYS = {True: "aware", False: "staged", None: "mixed"}
MODES = [
    pytest.param({"eager": eager, "aware": aware}, id=f"{'eager' if eager else 'lazy'} {WAYS[aware]}")
    for eager, aware in itertools.product((False, True), WAYS)
]


def combinations():
    """(cases, algorithm, form, eager, aware): all on two ranks with some algorithms, the mixed way with all."""
    size = MPI.COMM_WORLD.size
    for (cases, algorithm, form), eager, aware in itertools.product(CASES, (False, True), WAYS):
        often = size == 2 and algorithm in ("ring", "pairwise", "linear")
        if algorithm and (often or (aware is None and form != "blocking" and (size == 2 or form == "nonblocking"))):
            name = f"{cases.__name__}-{algorithm}-{form}-{'eager' if eager else 'lazy'} {WAYS[aware]}"
            yield pytest.param(cases, algorithm, form, eager, aware, id=name)


@pytest.fixture(autouse=True)
def short_messages(monkeypatch):
    monkeypatch.setattr(call_module, "MESSAGE_LIMIT", 64)
    watch(monkeypatch)


def perform(comm, device, form, name, *buffers, **arguments):
    """The result of a call on late arrays over the memory of `buffers`, whose content is written late by the caller."""
    late = {}
    for buffer in buffers:
        if isinstance(buffer, np.ndarray) and id(buffer) not in late:
            late[id(buffer)] = device.Array(buffer), buffer.copy()
    passed = [late[id(buffer)][0] if id(buffer) in late else buffer for buffer in buffers]

    def fill():
        for array, _ in late.values():
            array._host.reshape(-1).view(np.uint8)[...] = POISON
        for array, content in late.values():
            array.fill_late(content)

    if form == "blocking":
        fill()
        return getattr(comm, name)(*passed, **arguments)
    if form == "nonblocking":
        fill()
        return getattr(comm, "i" + name)(*passed, **arguments).wait()
    plan = getattr(comm, name + "_init")(*passed, **arguments)
    for _ in range(2):
        device.synchronise()
        fill()
        plan.start()
        result = plan.wait()
    plan.free()
    return result


@pytest.mark.parametrize(("cases", "algorithm", "form", "eager", "aware"), list(combinations()))
def test_nothing_is_touched_too_early(comm, cases, algorithm, form, eager, aware):
    device = Device(eager=eager, aware=aware, seed=comm.rank)
    for buffers, arguments, _, want in cases(comm, np.dtype("float64"), "avg" if cases in REDUCING else "sum"):
        result = perform(comm, device, form, cases.__name__, *buffers, algorithm=algorithm, **arguments)
        if want is None:
            assert result is None
        else:
            assert (result.get().reshape(-1) == want.reshape(-1)).all(), arguments
    assert any(cases.__name__ in what for _, what in device.log)


def exchange(comm, device, form, count=100):
    """Whether the all-reduce and the all-to-all of changing data are right, or what was raised."""
    try:
        for i in range(3):
            x = np.arange(count, dtype="float64") + comm.rank + 1000 * i
            y = perform(comm, device, form, "allreduce", x, np.empty_like(x), algorithm="ring").get()
            if not (y == comm.size * (np.arange(count) + 1000 * i) + sum(range(comm.size))).all():
                return False
            z = np.repeat(np.arange(comm.size) + comm.size * (comm.rank + i), 50)
            y = perform(comm, device, form, "alltoall", z, np.empty_like(z)).get()
            if not (y == np.repeat(comm.size * (np.arange(comm.size) + i) + comm.rank, 50)).all():
                return False
    except Exception as error:  # TooEarly, or what follows from it on another rank
        return type(error)
    return True


def found(verdicts):
    """Whether there was a wrong result, or an error of what is tested, not of this test."""
    return bool({False, TooEarly, mpicoll.progress.CollectiveError, MPI.Exception} & set(verdicts))


def copied_too_early(self, start=Staged.Start):
    start(self)
    if self.memory is not None and not self.sends:
        self.event = self.copy(len(self.memory))


FAULTS = {  # what is planted, and where it shows
    "the first step does not wait for the caller's work": ("lazy aware", LateArrays, "ready", lambda self: None),
    "events lie": ("lazy staged", Work, "Test", lambda self: self.device.look() or True),
    "a message leaves before it is copied": ("lazy staged", Staged, "_can_be_posted", lambda self: True),
    "a message is copied on before it has come": ("eager staged", Staged, "Start", copied_too_early),
    "host memory is used again too early": ("lazy staged", Staged, "_has_memory", lambda self: True),
    "a kernel's end is not waited for": (
        "lazy aware",
        LateArrays,
        "_kernel",
        lambda self, *arguments, kernel=LateArrays._kernel: kernel(self, *arguments) and None,
    ),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("fault", FAULTS)
def test_what_is_too_early_is_found(comm, monkeypatch, fault, form):
    if comm.size != 2:
        pytest.skip("for two ranks")
    way, *planted = FAULTS[fault]
    device = Device(eager="eager" in way, aware="aware" in way, seed=comm.rank)
    monkeypatch.setattr(*planted)
    faulty = mpicoll.Communicator(MPI.COMM_WORLD)
    verdict = exchange(faulty, device, form)
    faulty._transport.fail("it was planted", "nothing else")
    assert found(MPI.COMM_WORLD.allgather(verdict))


@pytest.mark.parametrize("way", MODES)
def test_what_is_right_is_not_found(comm, way):
    assert exchange(comm, Device(**way, seed=comm.rank), "persistent") is True


def test_messages_out_of_order_are_found(comm, monkeypatch):
    if comm.size == 1:
        pytest.skip("one rank sends nothing")
    init = Staged.__init__
    monkeypatch.setattr(Staged, "__init__", lambda self, *rest: init(self, *rest[:-1], type(rest[-1])()))
    faulty = mpicoll.Communicator(MPI.COMM_WORLD)
    verdict = exchange(faulty, Device(aware=None, seed=comm.rank), "nonblocking")
    faulty._transport.fail("it was planted", "nothing else")
    assert found(MPI.COMM_WORLD.allgather(verdict))


def test_a_piece_is_sent_while_the_next_is_copied(comm, monkeypatch):
    device = Device(rates={"outward": 1.0, "inward": 1.0, "user": 1.0, "kernels": 1.0})
    device.now = lambda: device.ticks
    posting = call_module.LiveCall._posting

    def logged(self, buffer, peer, tag, sending):
        post = posting(self, buffer, peer, tag, sending)
        return lambda: (device.log.append((device.now(), "posted")) if sending else None, post())[1]

    monkeypatch.setattr(call_module.LiveCall, "_posting", logged)
    n = 100 * comm.size
    x = device.array(np.repeat(np.arange(comm.size), 100) * 1.0 + 10 * comm.rank)
    y = comm.alltoall(x)  # to each of the others 800 bytes: 13 pieces
    assert (y.get() == np.repeat(np.arange(comm.size) * 10.0, 100) + comm.rank).all()
    assert n == len(y)
    events = [what for _, what in device.log if what in ("posted", "a copy to the host ended")]
    assert events == ["a copy to the host ended", "posted"] * 13 * (comm.size - 1)


def test_host_memory_is_bounded_and_given_back(comm):
    device = Device(seed=comm.rank)
    x = device.array(np.arange(500.0 * comm.size))
    for _ in range(3):
        comm.alltoall(x)
        pinned = [free for (kind, _), free in comm._transport.pool.items() if kind is device.kind.pinned]
        assert sum(map(len, pinned)) <= 2 * WINDOW * comm.size
    if comm.size > 1:
        assert sum(map(len, pinned)) >= 2 * WINDOW


def test_a_host_array_receives_what_a_device_sends(comm):
    device = Device(seed=comm.rank)
    x = np.arange(100.0) + comm.rank
    y = comm.allreduce(device.array(x) if comm.rank % 2 else x)
    y = y.get() if comm.rank % 2 else y
    assert (y == comm.size * np.arange(100) + sum(range(comm.size))).all()


def trained(comm, place, monkeypatch):
    """The parameters and losses of a small model trained for some steps."""
    monkeypatch.setattr(layers, "_add_sorted", layers._add_product)  # a device's order of additions
    windows = Text(b"the quick brown fox jumps over the lazy dog; " * 20, context=5).to(place).train
    model = CharMLP(28, 5, 4, 16, 2, seed=comm.rank).to(place)
    model = mpicoll.DistributedDataParallel(model, comm, bucket_cap_mb=1e-3, first_bucket_mb=1e-3)
    sampler = Sampler(len(windows), 24, comm.rank, comm.size, seed=3)
    records = list(loop.train(comm, model, AdamW(model.parameters, 0.01), windows, sampler, 13, lambda step: 0.01))
    return [on_host(p.data) for p in model.parameters], [record["loss"] for record in records]


@pytest.mark.parametrize("mode", MODES)
def test_training_on_a_device_gives_the_bits_of_the_host(comm, monkeypatch, mode):
    if 24 % comm.size:
        pytest.skip("the batch does not divide")
    device = Device(**mode, seed=comm.rank)
    parameters, losses = trained(comm, device.array, monkeypatch)
    expected, expected_losses = trained(comm, np.asarray, monkeypatch)
    assert losses == expected_losses
    for own, other in zip(parameters, expected, strict=True):
        assert own.tobytes() == other.tobytes()


def test_buckets_leave_while_backward_goes_on_and_nobody_waits(comm, monkeypatch):
    if comm.size not in (2, 3):
        pytest.skip("for two and three ranks")
    monkeypatch.setattr(call_module, "MESSAGE_LIMIT", 1 << 20)
    device = Device(ticks=1)
    monkeypatch.setattr(gpu, "span", device.kind.span)
    DeviceArray.waited_at.clear()
    trained(comm, device.array, monkeypatch)
    assert all("replicas.py" in line for line in DeviceArray.waited_at)
    log = [what for _, what in device.log]
    step = log[log.index("forward") : log.index("optimizer")]  # the first
    buckets = [what for what in step if what.startswith("bucket")]
    assert len(buckets) > 3
    assert step.index("a copy to the host began") < step.index(buckets[-1])
    kernels = [i for i, what in enumerate(step) if what == "the caller's kernel began"]
    assert step.index("allreduce round 0") < kernels[-1]


def test_messages_arrive_in_order_whatever_they_are_made_of(comm):
    staged, aware = Device(seed=comm.rank), Device(aware=True, seed=comm.rank, ticks=30)
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size

    def made(kind, values):
        return values if kind == "host" else {"staged": staged, "aware": aware}[kind].array(values)

    orders = [("staged", "host", "aware"), ("aware", "staged", "host"), ("host", "aware", "staged", "staged")]
    for there, here in itertools.product(orders, orders):
        handles, received = [], []
        for i, (a, b) in enumerate(zip(there, here, strict=False)):
            out, into = made(a, np.full(3 * (i != 1), float(i))), made(b, np.full(3, -1.0))
            handles += [comm.isend(out, right), comm.irecv(into, left)]
            received.append(into)
        for handle in reversed(handles):
            handle.wait()
        values = [array if isinstance(array, np.ndarray) else array.get() for array in received]
        assert [value[0] for value in values] == [0, -1, 2, 3][: len(values)]  # the second one is empty


def test_a_handle_tells_when_the_callers_work_was_done(comm):
    device = Device(ticks=50, seed=comm.rank)
    x = device.array(np.zeros(3))
    plan = comm.allreduce_init(x, x)
    for start in (lambda: comm.iallreduce(x, x), lambda: plan.start() or plan):
        x.fill_late(1.0)
        before = time.perf_counter()
        handle = start()
        handle.wait()
        assert before < handle.began_at < handle.ended_at
    plan.free()
    host = comm.iallreduce(np.zeros(3))
    host.wait()
    assert host.began_at is None


def test_arrays_of_two_devices_do_not_mix(comm):
    with pytest.raises(TypeError, match=r"^allreduce: sendbuf is an array of the stand-in, recvbuf a NumPy array"):
        comm.allreduce(Device().array(np.zeros(3)), np.zeros(3))


def test_eight_bit_floats_travel_and_are_reduced(comm):
    device = Device(seed=comm.rank)
    for dtype in FLOAT8:
        y = comm.allreduce(device.array(np.ones(10, dtype)), op="max").get()
        assert y.dtype == dtype
        assert (y == np.ones(10, dtype)).all()


@pytest.mark.parametrize("kind", ["host", "staged", "aware"])
def test_more_than_was_expected_is_found_though_it_comes_in_pieces(comm, kind):
    if comm.size == 1:
        pytest.skip("one rank sends nothing")
    device = Device(aware=kind == "aware", seed=comm.rank)
    x = np.zeros(20 if comm.rank == 0 else 16)  # 160 bytes in 3 pieces, into 128 in 3, of which the last is empty
    broken = mpicoll.Communicator(MPI.COMM_WORLD)
    try:
        broken.broadcast(x if kind == "host" else device.array(x), algorithm="linear")
        told = ""
    except mpicoll.progress.CollectiveError as error:
        told = str(error)
    broken._transport.fail("it was planted", "nothing else")
    assert ("were expected; do all ranks pass the same counts" in told) == (comm.rank > 0)


@pytest.mark.parametrize("kind", ["host", "staged", "aware"])
def test_a_short_message_leaves_the_rest_of_a_long_buffer_as_it_was(comm, kind):
    device = Device(aware=kind == "aware", seed=comm.rank)
    x, y = np.full(30, float(comm.rank)), np.full(100, -1.0)
    if kind != "host":
        x, y = device.array(x), device.array(y)
    comm.sendrecv(x, (comm.rank + 1) % comm.size, y, (comm.rank - 1) % comm.size)
    got = y if kind == "host" else y.get()
    assert (got[:30] == (comm.rank - 1) % comm.size).all()
    assert (got[30:] == -1).all()


def test_arrays_are_let_go_when_a_call_has_ended(comm):
    device = Device(seed=comm.rank)
    gc.disable()
    try:
        arrays = [device.array(np.zeros(10)), Tensor(np.zeros(10))]
        gone = [weakref.ref(array) for array in arrays]
        for array in arrays:
            comm.allreduce(array, array)
            comm.iallreduce(array, array).wait()
        del array, arrays
        assert [ref() for ref in gone] == [None, None]
    finally:
        gc.enable()
