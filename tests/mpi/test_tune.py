"""A tuning table decides on all ranks as rank 0 has it; tune measures and writes one."""

import json
import os

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll
from mpicoll import arrays, tune, tuning
from mpicoll.pricing import HOST
from mpicoll.rules import Rule
from mpicoll.tuning import Entry, Measured, layout

pytestmark = [pytest.mark.mpi(min_size=2), pytest.mark.ranks(range(4))]

WORLD = MPI.COMM_WORLD
LINKS = Measured(HOST.node, None, False, HOST.gamma, HOST.gamma_cached, 1 << 16)
RULES = {
    "allreduce": (Rule(64, "tree"), Rule(4096, "linear"), Rule(None, "ring")),
    "barrier": (Rule(None, "dissemination"),),
}


few = pytest.mark.skipif(WORLD.size > 3, reason="measures for seconds: up to three ranks, since time is short")


@pytest.fixture
def table(tmp_path, monkeypatch):
    """table(rules, nodes, mpi): a file on rank 0, which alone is told of it by MPICOLL_TUNING."""
    before = arrays._copied

    def write(rules=RULES, nodes=(0,) * WORLD.size, mpi=None):
        file = tmp_path / "t.json"
        if WORLD.rank == 0:
            entry = Entry(mpi or tuning.this_mpi(), MPI.Get_processor_name(), "2026-09-25", LINKS, (0, 0), rules)
            tuning.save(file, layout(nodes), entry)
            monkeypatch.setenv(tuning.VARIABLE, str(file))
        else:
            monkeypatch.setenv(tuning.VARIABLE, "there is no such file")
        return WORLD.bcast(file)

    yield write
    arrays.copy_between(*before)


def same_everywhere(value):
    assert len(set(WORLD.allgather(str(value)))) == 1
    return value


def test_the_table_of_rank_0_decides_on_all_ranks(table):
    file = table()
    with mpicoll.Communicator(WORLD) as comm:
        assert comm.links.segment == 1 << 16
        for nbytes, name, where in [
            (0, "tree", "up to 64 B"),
            (64, "tree", "up to 64 B"),
            (68, "linear", "above 64 B, up to 4 KiB"),
            (4096, "linear", "above 64 B, up to 4 KiB"),
            (4100, "ring", "above 4 KiB"),
        ]:
            choice = same_everywhere(comm.explain("allreduce", nbytes))
            assert choice.algorithm == name
            assert choice.reason.startswith(
                f"the fastest as measured, {where}: {file}, layout {comm.size}, measured on"
            )
            x = np.full(nbytes // 4, comm.rank + 1, np.float32)
            assert (comm.allreduce(x) == comm.size * (comm.size + 1) / 2).all()
        comm.barrier()


def test_the_algorithm_of_a_rule_is_the_one_that_runs(table, monkeypatch):
    from mpicoll import selection

    ran = []
    original = selection.function

    def noted(collective, algorithm, *rest):
        ran.append((collective, algorithm))
        return original(collective, algorithm, *rest)

    table()
    monkeypatch.setattr(selection, "function", noted)
    selection.chosen.cache_clear()
    with mpicoll.Communicator(WORLD) as comm:
        comm.allreduce(np.zeros(20, np.float32))
        comm.iallreduce(np.zeros(2000, np.float32)).wait()
    assert ran == [("allreduce", "linear"), ("allreduce", "ring")]


def test_what_is_forced_or_limited_stays_strict(table, monkeypatch):
    table()
    monkeypatch.setenv("MPICOLL_ALGORITHM", "allreduce:recursive_doubling,ring")
    with mpicoll.Communicator(WORLD) as comm:
        assert comm.explain("allreduce", 8, "swing")[:3] == ("swing", "the call names it", {})
        assert comm.explain("allreduce", 1 << 20).algorithm == "ring"  # the rule's is allowed
        choice = same_everywhere(comm.explain("allreduce", 8))  # the rule's is not: the model decides among the allowed
        assert choice.algorithm in ("recursive_doubling", "ring")
        assert "of those that MPICOLL_ALGORITHM allows (recursive_doubling, ring)" in choice.reason
        with pytest.raises(ValueError, match="allreduce: algorithm is 'best'; there are"):
            comm.allreduce(np.zeros(3), algorithm="best")


def test_a_collective_or_layout_that_was_not_measured_is_the_models(table):
    table(nodes=(0,) * (WORLD.size + 1))
    with mpicoll.Communicator(WORLD) as comm:
        assert comm.links.segment == 1 << 16
        for collective in "allreduce", "alltoallv":
            reason = same_everywhere(comm.explain(collective, 8)).reason
            assert reason.startswith("the shortest predicted time for ")
            assert f"which has no layout {comm.size}, but {comm.size + 1}, measured on" in reason


def test_another_mpi_is_told(table):
    table(mpi="Some MPI 1.0")
    with mpicoll.Communicator(WORLD) as comm:
        reason = same_everywhere(comm.explain("allreduce", 8)).reason
        assert f"with Some MPI 1.0 on 2026-09-25 (this is {WORLD.bcast(MPI.Get_processor_name())} with " in reason


def test_none_switches_a_table_off(table, monkeypatch):
    table()
    monkeypatch.setenv(tuning.VARIABLE, "none")
    with mpicoll.Communicator(WORLD) as comm:
        assert comm.links == HOST
        assert "measured" not in comm.explain("allreduce", 8).reason


def test_a_broken_table_is_raised_on_every_rank_with_its_line(table):
    file = table()
    if WORLD.rank == 0:
        file.write_text(file.read_text().replace('"linear"', '"linaer"'))
    with pytest.raises(ValueError, match=r"t.json, line \d+: allreduce: 'linaer' is no algorithm; there are") as told:
        mpicoll.Communicator(WORLD)
    same_everywhere(told.value)
    if WORLD.rank == 0:
        file.unlink()
    with pytest.raises(ValueError, match=r"t.json: No such file or directory; `python -m mpicoll.tune -o FILE`"):
        mpicoll.Communicator(WORLD)


def run(capsys, *arguments):
    """Exit status and what was printed, of rank 0; elsewhere nothing is, and all is well."""
    status = tune.main(list(arguments))
    printed = capsys.readouterr()
    if WORLD.rank:
        assert (status, printed.out, printed.err) == (0, "", "")
    return WORLD.bcast((status, printed.out, printed.err))


@few
def test_tune_writes_a_table_and_says_what_it_found(table, capsys, monkeypatch):
    file = table({"reduce": (Rule(None, "tree"),)})
    status, out, err = run(capsys, "-o", str(file), "--seconds", "1", "--collectives", "allreduce,barrier")
    assert status == 0
    assert "checking the model: allreduce of " in err  # the progress bar
    for told in "same node", "reduction: ", "segments of pipelines: ", "allreduce", "the model alone", "Off by ":
        assert told in out
    assert f"{file} has layout {WORLD.size}" in out
    if WORLD.rank == 0:
        assert not [path for path in os.listdir(file.parent) if path != "t.json"]
        entry = json.loads(file.read_text())["layouts"][str(WORLD.size)]
        assert set(entry["rules"]) == {"allreduce", "barrier", "reduce"}  # what was there of this machine stays
        monkeypatch.setenv(tuning.VARIABLE, str(file))
    with mpicoll.Communicator(WORLD) as comm:
        assert "the fastest as measured" in same_everywhere(comm.explain("allreduce", 1000)).reason


@few
def test_guidelines_are_checked_with_the_table_in_use(table, capsys):
    file = table()
    status, out, _ = run(capsys, "--guidelines", "--seconds", "1")
    assert status == 0
    assert f"{WORLD.size} ranks, {file}, layout {WORLD.size}, measured on" in out
    assert "reduce_scatter + allgather" in out


@few
def test_tune_is_not_limited_and_guidelines_tell_what_nothing_is_allowed_for(table, capsys, monkeypatch):
    file = table()
    monkeypatch.setenv("MPICOLL_ALGORITHM", "ring")
    status, _, err = run(capsys, "--guidelines", "--seconds", "1")
    assert status == 2
    assert "alltoall: MPICOLL_ALGORITHM allows none of its algorithms" in err
    status, out, _ = run(capsys, "-o", str(file), "--seconds", "1", "--collectives", "barrier")
    assert status == 0
    assert "barrier" in out


def test_a_table_that_cannot_be_added_to_is_told_at_once(table, capsys):
    file = table()
    if WORLD.rank == 0:
        file.write_text('{"schema": 7}')
    status, out, err = run(capsys, "-o", str(file))
    assert (status, out) == (2, "")
    assert f"mpicoll.tune: error: tuning table {file}, line 1: schema: 7 is not 1" in err
    if WORLD.rank == 0:
        assert file.read_text() == '{"schema": 7}'
