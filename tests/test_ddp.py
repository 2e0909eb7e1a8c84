"""A wrapped model trains as by its own calls, and its gradients are those of all ranks."""

import numpy as np
import pytest
from fake_comm import one_rank, ranks

import mpicoll
from mpicoll.training.buckets import MIB
from mpicoll.training.ddp import DistributedDataParallel
from mpicoll.training.layers import Linear, ReLU
from mpicoll.training.models import Sequential

TINY = 8 / MIB


def model(seed=0):
    rng = np.random.default_rng(seed)
    return Sequential(
        [Linear("a", rng.random((3, 4)), np.zeros(4)), ReLU(), Linear("b", rng.random((4, 2)), np.zeros(2))]
    )


def inputs(rank):
    rng = np.random.default_rng(100 + rank)
    return rng.random((5, 3)), rng.random((5, 2))


def gradients(*samples):
    """What one process accumulates."""
    net = model()
    for x, grad in samples:
        net.forward(x)
        net.backward(grad)
    return [p.grad for p in net.parameters]


def close(parameters, expected):
    for p, grad in zip(parameters, expected, strict=True):
        np.testing.assert_allclose(p.grad, grad, rtol=1e-13, err_msg=p.name)


@pytest.mark.parametrize("overlap", [True, False])
def test_backward_leaves_the_average_over_the_ranks(overlap):
    expected = [grad / 3 for grad in gradients(*(inputs(rank) for rank in range(3)))]

    def program(comm):
        ddp = DistributedDataParallel(model(seed=comm.rank), comm, TINY, TINY, overlap=overlap)
        for _ in range(2):
            ddp.zero_grad()
            x, grad = inputs(comm.rank)
            assert ddp.forward(x).shape == (5, 2)
            ddp.backward(grad)
            close(ddp.parameters, expected)
        assert comm.launched == [2, 8, 4, 12] * 2

    ranks(3, program)


def test_inside_no_sync_gradients_only_accumulate():
    expected = [grad / 2 for grad in gradients(*(inputs(i) for i in range(4)))]

    def program(comm):
        ddp = DistributedDataParallel(model(), comm)
        first, last = inputs(comm.rank), inputs(2 + comm.rank)
        with ddp.no_sync():
            ddp.forward(first[0])
            ddp.backward(first[1])
        close(ddp.parameters, gradients(first))
        assert comm.launched == []
        ddp.forward(last[0])
        ddp.backward(last[1])
        close(ddp.parameters, expected)

    ranks(2, program)


def test_communication_starts_before_backward_has_ended():
    comm = one_rank()
    ddp, launched = DistributedDataParallel(model(), comm, TINY, TINY), []
    first = ddp.model.layers[0]
    backward = first.backward
    first.backward = lambda grad: [launched.extend(comm.launched), backward(grad)]
    x, grad = inputs(0)
    ddp.forward(x)
    ddp.backward(grad)
    assert launched == [2, 8]


def test_it_is_a_public_name():
    assert mpicoll.DistributedDataParallel is DistributedDataParallel
