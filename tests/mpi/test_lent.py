"""Arrays of other libraries, lent by DLPack, in every form; what is lent on devices is in test_foreign.py."""

import numpy as np
import pytest
from forms import FORMS

import mpicoll.communicator

pytestmark = pytest.mark.mpi


class Tensor:
    """An array that only lends its memory, as another library's."""

    def __init__(self, array):
        self.array, self.shape, self.ndim = array, array.shape, array.ndim

    def __dlpack__(self, **keywords):
        return self.array.__dlpack__(**keywords)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def call(comm, form, name, *arguments):
    if form == "blocking":
        for _ in range(2):
            getattr(comm, name)(*arguments)
        return getattr(comm, name)(*arguments)
    if form == "nonblocking":
        return getattr(comm, "i" + name)(*arguments).wait()
    plan = getattr(comm, name + "_init")(*arguments)
    plan.start()
    result = plan.wait()
    plan.free()
    return result


@pytest.mark.parametrize("form", FORMS)
def test_the_callers_own_array_holds_the_result_and_is_returned(comm, form):
    x, y = Tensor(np.full((2, 3), float(comm.rank))), Tensor(np.empty((2, 3)))
    assert call(comm, form, "allreduce", x, y) is y
    assert (y.array == sum(range(comm.size))).all()
    assert (x.array == comm.rank).all()


@pytest.mark.parametrize("form", FORMS)
def test_in_place_is_the_same_array_twice(comm, form):
    x = Tensor(np.full(5, float(comm.rank)))
    assert call(comm, form, "allreduce", x, x, "max") is x
    assert (x.array == comm.size - 1).all()


def test_a_new_result_is_numpys(comm):
    y = comm.allgather(Tensor(np.full((2, 2), comm.rank)))
    assert type(y) is np.ndarray
    assert (y == np.repeat(np.arange(comm.size), 4).reshape(-1, 2)).all()


def test_messages_take_them_at_any_place(comm):
    y = Tensor(np.zeros(3))
    assert comm.sendrecv(np.full(3, float(comm.rank)), (comm.rank + 1) % comm.size, y, (comm.rank - 1) % comm.size) is y
    assert (y.array == (comm.rank - 1) % comm.size).all()


def test_the_lender_is_asked_at_every_start(comm, monkeypatch):
    asked = []
    monkeypatch.setattr(mpicoll.communicator.foreign, "refresh", asked.append)
    x = Tensor(np.zeros(3))
    plan = comm.allreduce_init(x, x)
    for times in (2, 4):
        plan.start()
        plan.wait()
        assert asked == [x] * times
    plan.free()


def test_what_cannot_be_lent_is_told(comm):
    class Stubborn(Tensor):
        def __dlpack__(self, **keywords):
            raise BufferError("it is mine")

    with pytest.raises(TypeError, match=r"^allreduce: sendbuf is of type Stubborn, and .*it is mine"):
        comm.allreduce(Stubborn(np.zeros(3)))
    read_only = np.zeros(3)
    read_only.flags.writeable = False
    with pytest.raises(ValueError, match=r"^allreduce: recvbuf is read-only"):
        comm.allreduce(np.zeros(3), Tensor(read_only))
