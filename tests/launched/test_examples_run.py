"""The examples as users type them."""

import re

import pytest

EXAMPLE = "mpicoll.examples."


def losses(done):
    """The loss at each step reported."""
    assert done.returncode == 0, done.stderr
    return {int(step): float(loss) for step, loss in re.findall(r"^step +(\d+)  loss ([\d.]+)$", done.stdout, re.M)}


def test_the_distributed_script_prints_the_losses_of_the_local_one(mpirun):
    alone = losses(mpirun(1, "-m", EXAMPLE + "local"))
    assert len(alone) == 8
    assert alone[400] < 0.75 * alone[50]
    done = mpirun(2, "-m", EXAMPLE + "distributed")
    assert losses(done) == pytest.approx(alone, abs=2e-6)
    assert len(done.stdout.splitlines()) == 8  # rank 0's alone


@pytest.mark.parametrize("name", ["own_gradients", "torch_gradients"])
def test_the_reducer_without_a_model_of_ours(mpirun, name):
    if name == "torch_gradients":
        pytest.importorskip("torch")
    done = mpirun(2, "-m", EXAMPLE + name)
    found = losses(done)
    assert list(found) == [50, 100, 150, 200]
    assert found[200] < found[50]
    assert done.stdout.endswith("the weights are the same on all 2 ranks: True\n")


@pytest.mark.parametrize("size", [1, 2, 3])
def test_every_device_has_the_sum_over_all_devices(mpirun, size):
    done = mpirun(size, "-m", EXAMPLE + "many_devices")
    assert done.returncode == 0, done.stderr
    n = 4 * size
    assert done.stdout == f"{size} processes x 4 devices, 1,000,003 numbers each: every sum is {n * (n - 1) // 2}\n"
