"""Training on a device gives the bits of training on the host, and never waits for it but to report."""

import contextlib
import sys

import numpy as np
import pytest
from device_array import FUNCTIONS, UFUNCS, DeviceArray, NotThere, asarray
from fake_comm import one_rank, ranks

from mpicoll import gpu
from mpicoll.training import layers, loop
from mpicoll.training.buckets import MIB
from mpicoll.training.data import Text
from mpicoll.training.ddp import DistributedDataParallel
from mpicoll.training.losses import cross_entropy
from mpicoll.training.models import CharMLP
from mpicoll.training.optimizers import SGD, AdamW, clip
from mpicoll.training.reducer import Reducer
from mpicoll.training.replicas import fingerprints, first_difference
from mpicoll.training.sampler import Sampler

STEPS, BATCH = loop.REPORT_EVERY + 3, 24


@pytest.fixture(autouse=True)
def waits():
    """The lines that waited for the device in this test."""
    DeviceArray.waited_at.clear()
    DeviceArray.host_waits = 0
    return DeviceArray.waited_at


def same(array):
    """The place of what stays on the host."""
    return array


def text(place):
    return Text(b"the quick brown fox jumps over the lazy dog; " * 20, context=5).to(place)


def model(place, seed=1):
    return CharMLP(28, 5, 4, 16, 2, seed=seed).to(place)


def trained(comm, place, kind=AdamW, micro_batch=None, wrapper=DistributedDataParallel):
    """The model, after some steps on small buckets, and the losses that were reported."""
    windows = text(place).train
    net = wrapper(model(place, seed=1 + comm.rank), comm, bucket_cap_mb=1e-3, first_bucket_mb=1e-3)
    sampler = Sampler(len(windows), BATCH, comm.rank, comm.size, seed=3, micro_batch=micro_batch)
    optimizer = kind(net.parameters, lr=1.0)
    records = list(loop.train(comm, net, optimizer, windows, sampler, STEPS, lambda step: 0.01 * (step + 1)))
    return net, [record["loss"] for record in records]


@pytest.mark.parametrize("kind", [AdamW, SGD])
@pytest.mark.parametrize("micro_batch", [None, 8])
def test_training_on_a_device_gives_the_bits_of_training_on_the_host(monkeypatch, waits, kind, micro_batch):
    on_device, losses = trained(one_rank(), asarray, kind, micro_batch)
    assert len(waits) == 2  # reports of 13 steps
    assert all("replicas.py" in line for line in waits)
    for p in on_device.parameters:
        assert type(p.data) is type(p.grad) is DeviceArray
    monkeypatch.setattr(layers, "_add_sorted", layers._add_product)  # the device's order of additions
    on_host, expected = trained(one_rank(), same, kind, micro_batch)
    assert losses == expected
    assert losses[-1] < losses[0]
    assert fingerprints(on_device.parameters).tobytes() == fingerprints(on_host.parameters).tobytes()


def test_ranks_on_devices_end_alike():
    def program(comm):
        net, losses = trained(comm, asarray)
        return first_difference(comm, net.parameters), losses

    (difference, losses), *others = ranks(3, program)
    assert difference is None
    assert others == [(None, losses)] * 2


def test_both_ways_to_add_rows_add_the_same():
    rng = np.random.default_rng(0)
    indices, rows = rng.integers(9, size=100).astype(np.uint8), rng.standard_normal((100, 3))
    one, other = np.ones((11, 3)), asarray(np.ones((11, 3)))
    layers._add_sorted(one, indices, rows)
    layers._add_product(other, asarray(indices), asarray(rows))
    np.testing.assert_allclose(other.get(), one, rtol=1e-13)


def test_an_empty_batch_on_a_device_changes_nothing():
    layer = layers.Embedding("embedding", asarray(np.ones((7, 3))))
    assert layer.forward(asarray(np.empty((0, 4), np.uint8))).shape == (0, 12)
    layer.backward(asarray(np.empty((0, 12))))
    assert not layer.table.grad.get().any()


def test_the_evaluation_waits_once(waits):
    net, windows = model(asarray), text(asarray).held_out
    loss = loop.evaluate(one_rank(), net, windows, batch=7)
    assert len(waits) == 1
    assert loss == loop.evaluate(one_rank(), model(same), text(same).held_out, batch=7)


def test_clipping_waits_for_nothing(waits):
    on_device, on_host = model(asarray), model(same)
    for p, q in zip(on_device.parameters, on_host.parameters, strict=True):
        p.grad += 2
        q.grad += 2
    norm = clip(on_device.parameters, 1.0)
    assert not waits
    assert float(norm) == clip(on_host.parameters, 1.0) > 1
    for p, q in zip(on_device.parameters, on_host.parameters, strict=True):
        assert (p.grad.get() == q.grad).all()


def test_of_a_batch_only_the_samplers_indices_travel_to_the_device(monkeypatch):
    right, arrived = FUNCTIONS[np.asarray], []

    def counting(cls, x, order=None):
        arrived.extend([x.nbytes] if isinstance(x, np.ndarray) else [])
        return right(cls, x, order)

    monkeypatch.setitem(FUNCTIONS, np.asarray, counting)
    trained(one_rank(), asarray, micro_batch=8)
    assert arrived == [BATCH * 8] * STEPS


def test_profilers_see_what_a_step_is_made_of(monkeypatch):
    seen, depth = [], [0]

    @contextlib.contextmanager
    def span(name):
        seen.append("  " * depth[0] + name)
        depth[0] += 1
        yield
        depth[0] -= 1

    monkeypatch.setattr(gpu, "span", span)
    monkeypatch.setattr(sys.modules[__name__], "STEPS", 1)
    net, _ = trained(one_rank(), asarray, micro_batch=12)
    buckets = [f"  bucket {i}" for i in range(len(net.buckets))]
    assert seen == ["forward", "backward", "forward", "backward", *buckets, "all-reduce", "optimizer"]


def test_gradients_are_views_into_buckets_on_the_device(waits):
    comm = one_rank()
    net = model(asarray)
    reducer = Reducer(comm, net.parameters, 300 / MIB, 300 / MIB)
    assert len(reducer.buckets) > 2
    for p in net.parameters:
        p.grad += 1
    assert all((bucket.flat._host == 1).all() for bucket in reducer.buckets)
    for p in net.parameters:
        reducer.mark_ready(p)
    reducer.finish()
    assert all((p.grad._host == 1).all() for p in net.parameters)
    reducer.zero_grad()
    assert not any(p.grad._host.any() for p in net.parameters)
    assert not waits


def test_gradients_that_are_not_finite_or_not_used_are_found_on_the_device(waits):
    ps = model(asarray).parameters
    reducer = Reducer(one_rank(), ps, 300 / MIB, 300 / MIB, check_finite=True, find_unused_parameters=True)
    ps[0].grad.fill(0.1)
    reducer.report_used(ps[1:])
    for p in ps[1:]:
        reducer.mark_ready(p)
    reducer.finish()
    assert len(waits) == 1  # the verdict
    assert reducer.unused == ps[:1]
    assert (ps[0].grad._host == np.float32(0.1)).all()
    ps[1].grad.fill(np.nan)
    reducer.report_used(ps)
    for p in ps:
        reducer.mark_ready(p)
    with pytest.raises(FloatingPointError, match=rf"not finite: {ps[1].name} on rank\(s\) 0$"):
        reducer.finish()


def step(wrapper=DistributedDataParallel, net=None):
    net = wrapper(net or model(asarray), one_rank())
    batch = text(asarray).train[asarray(np.arange(BATCH))]
    losses, grad = cross_entropy(net.forward(batch[:, :-1]), batch[:, -1], divisor=BATCH)
    net.backward(grad)
    return losses


def test_a_layer_that_brings_in_an_array_of_the_host_is_refused():
    class Planted(layers.ReLU):
        def backward(self, grad):
            return super().backward(grad) * np.ones(grad.shape[1], np.float32)

    net = model(asarray)
    net.layers[2] = Planted()
    with pytest.raises(TypeError, match=r"Unsupported type <class 'numpy\.ndarray'>"):
        step(net=net)


def test_a_wait_inside_backward_is_found(waits):
    class Planted(DistributedDataParallel):
        def backward(self, grad):
            if float(grad.sum()) < 1:
                super().backward(grad)

    step()
    assert not waits
    step(Planted)
    (line,) = waits
    assert "test_device_training.py" in line
    assert "float(grad.sum())" in line


REFUSALS = {
    "to become NumPy's": (lambda x: np.asarray(x), TypeError, "Implicit conversion"),
    "an operand of the host": (lambda x: np.ones(3) * x, TypeError, "Unsupported type"),
    "a result on the host": (lambda x: np.add(x, x, out=np.ones(3)), TypeError, "Unsupported type"),
    "an index of the host": (lambda x: x[np.arange(2)], TypeError, "index of type ndarray"),
    "a value of the host": (lambda x: x.__setitem__(0, np.ones(())), TypeError, "Unsupported type"),
    "what depends on threads": (lambda x: np.add.at(x, asarray(np.arange(2)), 1), NotThere, "whatever order"),
    "what is other in CuPy": (lambda x: np.add.reduceat(x, [0]), NotThere, "running sums"),
    "what nobody looked up": (lambda x: np.cumsum(x), NotThere, "cumsum is not in the stand-in"),
    "a method nobody looked up": (lambda x: x.cumsum(), NotThere, r"ndarray\.cumsum"),
    "a shape CuPy ignores": (lambda x: np.empty_like(x, shape=()), NotThere, r"shape \(\)"),
}


@pytest.mark.parametrize("what", REFUSALS)
def test_the_stand_in_refuses(what):
    use, error, says = REFUSALS[what]
    with pytest.raises(error, match=says):
        use(asarray(np.ones(3)))


@pytest.mark.parametrize(
    "use",
    [bool, float, int, repr, DeviceArray.item, DeviceArray.tolist, DeviceArray.get, np.unique, lambda x: x[x > 0]],
)
def test_the_stand_in_counts_what_waits(waits, use):
    use(asarray(np.ones(())))
    assert len(waits) == DeviceArray.host_waits == 1


def test_the_stand_in_tells_what_kernels_read_and_write():
    class Told(DeviceArray):
        @classmethod
        def launched(cls, reads, writes):
            told.append((reads, writes))

    told, x, y = [], Told(np.ones((2, 3))), Told(np.zeros(3))
    row = x[1]  # a view
    assert not told
    x[1] += y
    (((a, b), (written,)),) = told
    assert a.__array_interface__ == written.__array_interface__ == row._host.__array_interface__
    assert b is y._host
    x @ y
    assert [len(memories) for memories in told[1]] == [2, 1]


def test_cupy_has_what_the_stand_in_has():
    cupy = pytest.importorskip("cupy")
    for function in UFUNCS | set(FUNCTIONS):
        assert hasattr(cupy, function.__name__) or hasattr(cupy.lib.stride_tricks, function.__name__)
    for name in vars(DeviceArray):
        assert name in {"host_waits", "waited_at", "launched"} or name.startswith("_") or hasattr(cupy.ndarray, name)
