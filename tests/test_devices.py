"""All ranks train on GPUs or all on CPUs, and the heading says why."""

import numpy as np
import pytest

from mpicoll import gpu, probe, runtime
from mpicoll.training import devices


class World:
    """A world whose ranks have found this."""

    def __init__(self, *found):
        self.found = found

    def allgather(self, own):
        assert own in self.found
        return list(self.found)


def with_gpu(number=0, node="a", visible=None):
    return devices.Found(number, "NVIDIA H200", where=(node, visible, number))


WITHOUT = devices.Found(None, why="CUDA finds none")


@pytest.fixture
def staged(monkeypatch):
    monkeypatch.setenv("MPICOLL_CUDA", "staged")
    probe.cuda_aware.cache_clear()
    yield
    probe.cuda_aware.cache_clear()


@pytest.mark.parametrize("wanted", ["auto", "gpu"])
@pytest.mark.parametrize(
    ("others", "shared"),
    [
        ([], ""),
        ([with_gpu(1), with_gpu(0, "b"), with_gpu(0, visible="1")], ""),
        ([with_gpu(1), with_gpu(0), with_gpu(0, "b"), with_gpu(0)], ", shared by 3 ranks of this node"),
    ],
)
def test_ranks_with_gpus_train_on_them_and_say_who_shares_one(staged, wanted, others, shared):
    found = with_gpu()
    place, words = devices.agree(World(found, *others), wanted, found)
    assert place is gpu.place
    assert words == f"GPU 0 (NVIDIA H200){shared}; messages staged through host memory (MPICOLL_CUDA is 'staged')"


@pytest.mark.parametrize(
    ("found", "why"),
    [
        ([WITHOUT, WITHOUT], "there is no GPU: CUDA finds none"),
        ([with_gpu(), WITHOUT, with_gpu(1)], "rank 1 has no GPU: CUDA finds none"),
        ([WITHOUT, with_gpu()], "rank 0 has no GPU: CUDA finds none"),
    ],
)
def test_where_a_rank_has_no_gpu_all_train_on_cpus_unless_gpus_are_wanted(found, why):
    for own in found:
        assert devices.agree(World(*found), "auto", own) == (np.asarray, f"CPU; {why}")
        with pytest.raises(ValueError, match=f"^--device gpu: {why}; with --device auto"):
            devices.agree(World(*found), "gpu", own)


def test_who_wants_a_cpu_is_asked_nothing(monkeypatch):
    monkeypatch.setattr(gpu, "find", None)
    found = devices.find("cpu")
    assert devices.agree(None, "cpu", found) == (np.asarray, "CPU")


def test_a_rank_takes_the_gpu_of_its_place_on_the_node(monkeypatch):
    monkeypatch.setattr(gpu, "find", lambda: (4, ""))
    monkeypatch.setattr(gpu, "choose", lambda local_rank: local_rank % 4)
    monkeypatch.setattr(gpu, "name", lambda device: f"GPU of the maker, {device}")
    monkeypatch.setenv("MPI_LOCALRANKID", "6")
    assert devices.find("auto")[:3] == (2, "GPU of the maker, 2", "")


def test_a_gpu_that_cannot_be_used_is_none_and_says_why(monkeypatch):
    def choose(local_rank):
        raise RuntimeError("all CUDA-capable devices are busy or unavailable")

    monkeypatch.setattr(gpu, "find", lambda: (1, ""))
    monkeypatch.setattr(gpu, "choose", choose)
    found = devices.find("gpu")
    assert found.number is None
    assert found.why == "a GPU is there, but cannot be used: all CUDA-capable devices are busy or unavailable"


@pytest.mark.parametrize("name", ["MPI_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID"])
def test_the_launcher_tells_the_local_rank(monkeypatch, name):
    for other in runtime._LOCAL_RANK:
        monkeypatch.delenv(other, raising=False)
    assert runtime.launched_local_rank() == 0
    monkeypatch.setenv("SLURM_LOCALID", "1")  # of the shell in which mpirun was typed
    monkeypatch.setenv(name, "3")
    assert runtime.launched_local_rank() == 3
