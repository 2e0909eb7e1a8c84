"""`explain verify`: every algorithm is proven, and each thing that can be wrong is found by its name."""

import pytest

from mpicoll import explain
from mpicoll.algorithms import FAMILIES, bruck, double_tree, exchange, linear, pairwise, recursive_doubling, tree
from mpicoll.explaining import forms, verify

ALGORITHMS = [(collective, name) for collective, family in FAMILIES.items() for name in family]


@pytest.fixture
def text(capsys, monkeypatch):
    """text(command, status): what the command prints at 80 columns, in which nothing is wider."""
    monkeypatch.setenv("COLUMNS", "80")

    def run(command, status=0, width=80):
        assert explain.main(command.split()) == status
        printed = capsys.readouterr().out
        assert max(map(len, printed.splitlines())) <= width
        return printed

    return run


@pytest.fixture
def instead(monkeypatch, plant):
    """instead(collective, module, (old, new), ...): the algorithm itself is the one with the changed text."""

    def replaced(collective, module, *changes):
        plant(collective, module, *changes)
        name = module.__name__.rpartition(".")[2]
        monkeypatch.setitem(FAMILIES[collective], name, FAMILIES[collective].pop("planted"))
        return verify.verify(collective, name, 5)

    return replaced


def test_every_algorithm_is_proven():
    for collective, algorithm in ALGORITHMS:
        verdict = verify.verify(collective, algorithm, 3)
        assert verdict.problem is None
        assert verdict.runs > 5
        assert str(verdict).startswith(f"{collective} {algorithm} ")


def test_sizes_and_counts_are_those_of_the_design():
    cases = list(verify.cases("reduce", "tree", 64))
    for size in range(1, 18):
        counts = {sum(case.counts) for case in cases if len(case.counts) == size and not case.options}
        assert counts >= {0, 1, size - 1, size, size + 1, 37}
        assert {(case.root, case.in_place) for case in cases if len(case.counts) == size} >= {
            (0, True),
            (size - 1, False),
        }
    assert {(len(case.counts), sum(case.counts)) for case in cases} >= {(size, size + 1) for size in range(18, 65)}


RECEIVE = "yield comm.Irecv(buf, parent)", "yield comm.Irecv(buf[:0], parent)\n        yield comm.Irecv(buf, parent)"
SEND = "yield comm.Isend(buf, child)", "yield comm.Isend(buf[:0], child)\n        yield comm.Isend(buf, child)"
LOWER_FIRST = "op(result, got, mine) if peer < rank else op(result, mine, got)"


@pytest.mark.parametrize(
    ("collective", "module", "changes", "name"),
    [
        (
            "allreduce",
            recursive_doubling,
            [("Isend(mine, peer), comm.Irecv(got, peer)", "Irecv(got, peer)")],
            "Deadlock",
        ),
        ("broadcast", tree, [(SEND[0], f"{SEND[0]}, comm.Isend(buf, child)")], "Unreceived"),
        (
            "allreduce",
            recursive_doubling,
            [("yield comm.Isend(sendbuf,", "yield comm.Isend(sendbuf[1:],")],
            "WrongLength",
        ),
        ("reduce", linear, [("slots[i % len(slots)]", "slots[0]")], "Overlap"),
        ("reduce_scatter", pairwise, [("        mine = result\n", "")], "MissingContribution"),
        ("allreduce", recursive_doubling, [("vrank ^ distance", "vrank ^ 1")], "DoubledContribution"),
        ("allreduce", recursive_doubling, [(LOWER_FIRST, "op(result, mine, got)")], "Divergence"),
        ("alltoall", bruck, [("(rank - i) % size", "(rank + i) % size")], "WrongElement"),
        ("broadcast", tree, [SEND, RECEIVE], "WrongCost"),
        ("allreduce", exchange, [("parts = [", "comm.scratch(sendbuf)\n    parts = [")], "TooMuchScratch"),
        ("allreduce", exchange, [("parts = [", "1 / (size - 3)\n    parts = [")], "ZeroDivisionError"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_wrong_is_found_by_name(instead, collective, module, changes, name):
    assert instead(collective, module).problem is None
    assert instead(collective, module, *changes).problem.startswith(f"{name}: ")


def test_a_closed_form_that_is_wrong_is_found(monkeypatch):
    stated = forms.FORMS["allreduce", "tree"]
    for change in {"alpha": "up"}, {"beta": "up*n"}, {"gamma": ""}:
        monkeypatch.setitem(forms.FORMS, ("allreduce", "tree"), stated._replace(**change))
        assert verify.verify("allreduce", "tree", 2).problem.startswith("WrongTime: 2 ranks")
    monkeypatch.setitem(forms.FORMS, ("allreduce", "tree"), stated._replace(alpha="3*up", bound="always"))
    assert verify.verify("allreduce", "tree", 2).problem is None
    monkeypatch.delitem(forms.FORMS, ("allreduce", "tree"))
    assert verify.verify("allreduce", "tree", 2).problem.startswith("NotStated")


def test_a_rank_that_is_inner_in_both_trees_is_found(monkeypatch):
    verify.check_inner(16)

    def one_tree_twice(size, one_root):
        first = [edge for edge in double_tree.edges(size, one_root) if edge.tree == 0]
        return first + [edge._replace(tree=1) for edge in first]

    monkeypatch.setattr(verify, "edges", one_tree_twice)
    with pytest.raises(verify.InnerTwice, match="rank 0 of 2 is inner in 2 trees"):
        verify.check_inner(16)


def test_the_busiest_port_of_a_ring_is_as_busy_as_any_and_that_of_a_star_is_the_roots():
    busiest = verify.busiest_port("allreduce", "ring", 8)
    assert (float(busiest.buffers), busiest.rank) == (1.75, None)
    busiest = verify.busiest_port("allreduce", "linear", 8)
    assert (float(busiest.buffers), busiest.rank) == (7, 0)


def test_the_command_has_a_line_for_each_algorithm_and_the_status_is_1_if_one_is_wrong(monkeypatch, text, instead):
    for collective in FAMILIES:
        if collective not in ("gather", "barrier"):
            monkeypatch.setitem(FAMILIES, collective, {})
    lines = text("verify --max-size 2").splitlines()
    pairs = [(collective, name) for collective, names in FAMILIES.items() for name in names]
    assert [tuple(line.split()[:2]) for line in lines[-6:-2]] == pairs
    assert lines[-1].startswith("4 of 4 algorithms proven")
    instead("barrier", recursive_doubling, ("while distance < power:", "while distance < power // 2:"))
    printed = text("verify --max-size 2", status=1, width=200)
    assert "barrier recursive_doubling        WRONG: " in printed
    assert "3 of 4 algorithms proven" in printed
