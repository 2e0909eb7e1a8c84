"""What goes on without ranks that die, as far as one process can show it."""

import pytest

from mpicoll import survival
from mpicoll.progress import PeerDied
from mpicoll.training import options


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--sync", "parameter-server"], "--sync parameter-server, which has state on one rank alone"),
        (["--timeline", "x.json"], "--timeline, which collects the steps of all ranks"),
        (["--wire-dtype", "bfloat16"], "--wire-dtype bfloat16, which keeps what was rounded off on each rank"),
        (["--reproducible"], "--reproducible, which is for powers of two as numbers of ranks"),
    ],
)
def test_what_does_not_go_with_it_is_told(capsys, arguments, why):
    with pytest.raises(SystemExit):
        options.parse(["--elastic", *arguments], "")
    assert f"--elastic goes on without the ranks that die: it does not go with {why}" in capsys.readouterr().err


class Mpi:
    """An MPI communicator of ranks, all alive but for those that die at its next shrinking."""

    def __init__(self, size, dying=(), agreements=()):
        self.size, self.dying, self.agreements, self.revoked = size, list(dying), agreements, False

    def Revoke(self):
        self.revoked = True

    def Ack_failed(self):
        pass

    def Agree(self, fine):
        return fine & next(self.agreements, 1)

    def Shrink(self):
        smaller = self.size - (self.dying.pop(0) if self.dying else 0)
        return Mpi(smaller, self.dying, self.agreements)


class Comm:
    def __init__(self, mpi, duplicate=False):
        self.mpi = self._transport = mpi
        mpi.mpi = mpi


@pytest.fixture
def abandoned(monkeypatch):
    left = []
    monkeypatch.setattr(survival, "Communicator", Comm)
    monkeypatch.setattr(survival.leaving, "abandon", lambda transport, error: left.append((transport.size, str(error))))
    return left


def test_work_is_done_again_by_those_that_are_left(abandoned):
    sizes = []

    def work(comms):
        sizes.append([comm.mpi.size for comm in comms])
        if len(sizes) == 1:
            raise PeerDied("it is dead")
        return "done"

    result, comms = survival.survive([Comm(Mpi(4, [1], iter(()))), Comm(Mpi(4, [1], iter(())))], work)
    assert (result, sizes, [comm.mpi.size for comm in comms]) == ("done", [[4, 4], [3, 3]], [3, 3])
    assert abandoned == [(4, "it is dead")] * 2


def test_who_has_ended_begins_again_if_another_has_not(abandoned):
    results = iter(["too early", "done"])
    result, _ = survival.survive([Comm(Mpi(4, [1], iter([0, 1])))], lambda comms: next(results))
    assert result == "done"
    assert abandoned == [(4, "a rank of its communicator has died")]


def test_communicators_shrink_until_they_have_the_same_ranks():
    first, second = Mpi(4, [1, 1]), Mpi(4, [2])
    assert [mpi.size for mpi in survival._shrunk([first, second])] == [2, 2]


def test_another_error_is_not_survived(abandoned):
    def work(comms):
        raise ValueError("a bug")

    with pytest.raises(ValueError, match="a bug"):
        survival.survive([Comm(Mpi(4))], work)
    assert not abandoned
