"""What `python -m mpicoll.explain` shows: the lecture's figures, times and proofs; and that what is wrong is found."""

import contextlib
import copy
import inspect
import io
import itertools
import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

import mpicoll
from mpicoll import explain, links, selection, simulate, train
from mpicoll.algorithms import FAMILIES, bruck, double_tree, exchange, linear, pairwise, recursive_doubling, tree
from mpicoll.explaining import choice, crossover, forms, lecture, segments, verify
from mpicoll.explaining.figure import Part, draw
from mpicoll.explaining.holdings import Contradiction, Holdings
from mpicoll.explaining.text import figure_text

ROOT = Path(mpicoll.__file__).parent.parent
ALGORITHMS = [(collective, name) for collective, family in FAMILIES.items() for name in family]
each_algorithm = pytest.mark.parametrize(("collective", "algorithm"), ALGORITHMS)
REDUCING = ("reduce", "allreduce", "reduce_scatter")


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


# The figures.


def test_the_ring_of_4_is_the_lectures_figure():
    figure = draw("allreduce", "ring", 4)
    for step, arrows in enumerate(figure.steps):
        found = {(a.source, a.dest, part.piece, part.ranks) for a in arrows for part in a.parts}
        if step < 3:  # reduce-scatter: a chunk has been added up on the way from the rank right of its owner
            sent = {(r, (r - 1 - step) % 4, frozenset((r - i) % 4 for i in range(step + 1))) for r in range(4)}
        else:  # all-gather
            sent = {(r, (r - (step - 3)) % 4, frozenset(range(4))) for r in range(4)}
        assert found == {(rank, (rank + 1) % 4, chunk, ranks) for rank, chunk, ranks in sent}
    assert len(figure.steps) == 6
    after_the_first_phase = figure.held[3]
    assert all(after_the_first_phase[r][r] == [Part(r, frozenset(range(4)))] for r in range(4))


def test_its_text_says_who_sends_which_chunk_to_whom_and_what_each_chunk_holds(text):
    lines = text("allreduce ring -n 4").splitlines()
    start = lines.index("step 3   chunk 1 -> 1  chunk 2 -> 2  chunk 3 -> 3  chunk 0 -> 0")
    assert lines[start + 1 : start + 5] == [
        "chunk 0  a0+b0+c0+d0*  b0            b0+c0         b0+c0+d0",
        "chunk 1  a1+c1+d1      a1+b1+c1+d1*  c1            c1+d1",
        "chunk 2  a2+d2         a2+b2+d2      a2+b2+c2+d2*  d2",
        "chunk 3  a3            a3+b3         a3+b3+c3      a3+b3+c3+d3*",
    ]
    assert "chunk 0 = a+(d+(c+b))" in lines
    assert "every rank  9 rounds, 9 messages sent, 3/2 n bytes sent, 3/4 n reduced" in lines
    assert "time        (S+1)(p-1) alpha + 2(p-1)/p n beta + (p-1)/p n gamma; here 9 alpha +" in lines


def given(figure, rank, row):
    """What a rank has before anything is sent."""
    whole, own = range(figure.pieces), [row] if figure.collective in ("allgather", "gather", "barrier") else None
    if figure.collective == "alltoall":
        return [Part(piece, frozenset([rank])) for piece in whole] if row == rank else []
    if figure.collective in ("broadcast", "scatter"):
        return [Part(row, frozenset([figure.root]))] if rank == figure.root else []
    if own and figure.collective != "barrier" and rank != row:
        return []
    return [Part(row, frozenset([rank]))]


def follow(figure):
    """The arrows alone, from the beginning, give what the figure says that ranks hold, and in the end the result."""
    rows, adds = range(len(figure.held[0][0])), figure.collective in REDUCING
    had = [[set(given(figure, rank, row)) for row in rows] for rank in range(figure.size)]
    for step, arrows in enumerate(figure.steps):
        before, after = figure.held[step], figure.held[step + 1]
        assert len({arrow.source for arrow in arrows}) == len({arrow.dest for arrow in arrows}) == len(arrows)
        touched = set()
        for arrow in arrows:
            for part in arrow.parts:
                row = min(part.ranks) if figure.collective == "alltoall" else part.piece
                holds = [held for held in before[arrow.source][row] if held.piece == part.piece]
                assert holds, "a rank sends only what it holds"
                assert part.ranks <= holds[0].ranks if adds else part.ranks == holds[0].ranks
                had[arrow.dest][row].add(part)
                touched |= {(arrow.dest, row), *([(arrow.source, row)] if figure.collective == "alltoall" else [])}
        for rank, row in itertools.product(range(figure.size), rows):
            assert (rank, row) in touched or after[rank][row] == before[rank][row], "nothing changes without an arrow"
            for part in after[rank][row]:
                arrived = [other.ranks for other in had[rank][row] if other.piece == part.piece]
                inside = [ranks for ranks in arrived if ranks <= part.ranks]
                assert part.ranks == frozenset().union(*inside), "what a rank holds has come to it"
    everything = frozenset(range(figure.size))
    for rank, row in itertools.product(range(figure.size), rows):
        last = figure.held[-1][rank][row]
        if figure.collective == "allreduce":
            assert last == [Part(row, everything)]
        elif figure.collective in ("broadcast", "allgather"):
            assert [part.piece for part in last] == [row]
        elif figure.collective == "alltoall":
            assert last == [Part(rank, frozenset([row]))]


def follow_barrier(figure):
    """Knowledge goes along the arrows, and in the end everybody knows of all."""
    for arrows, before, after in zip(figure.steps, figure.held, figure.held[1:], strict=False):
        for rank in range(figure.size):
            told = [before[arrow.source][0][0].ranks for arrow in arrows if arrow.dest == rank]
            assert after[rank][0][0].ranks == before[rank][0][0].ranks.union(*told)
    assert all(rank == [[Part(0, frozenset(range(figure.size)))]] for rank in figure.held[-1])


@each_algorithm
def test_a_figure_can_be_followed_with_pen_and_paper(collective, algorithm):
    for size in 1, 2, 3, 4, 6, 8:
        root = size // 2 if collective in explain.ROOTED else 0
        options = explain.settings(collective, algorithm, size, {})
        figure = draw(collective, algorithm, size, root, **options)
        (follow_barrier if collective == "barrier" else follow)(figure)
        assert figure_text(figure, 80)


@pytest.mark.parametrize("options", [{"segments": 3}, {"channels": 2}, {"segments": 2, "channels": 2}])
def test_so_can_one_with_options(options):
    for collective in "broadcast", "allreduce":
        for size in 2, 5:
            follow(draw(collective, "ring", size, **options))


def wrong(change):
    """A figure of the ring in which something has been changed."""
    figure = copy.deepcopy(draw("allreduce", "ring", 4))
    change(figure)
    return figure


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(
            lambda f: f.steps[1].__setitem__(0, f.steps[1][0]._replace(dest=3)), id="an_arrow_to_another_rank"
        ),
        pytest.param(lambda f: f.steps[1].__setitem__(0, f.steps[2][0]), id="an_arrow_of_another_step"),
        pytest.param(lambda f: f.steps[4].pop(), id="an_arrow_is_missing"),
        pytest.param(lambda f: f.steps[0][0].parts.__setitem__(0, Part(2, frozenset([0]))), id="another_chunk"),
        pytest.param(
            lambda f: f.held[2][1].__setitem__(2, [Part(2, frozenset([0, 1]))]), id="a_contribution_is_missing"
        ),
        pytest.param(
            lambda f: f.held[3][2].__setitem__(3, [Part(3, frozenset([0, 1, 2, 3]))]), id="it_is_there_too_early"
        ),
        pytest.param(lambda f: f.held[6][1].__setitem__(0, []), id="a_result_is_missing"),
    ],
)
def test_a_wrong_arrow_or_content_is_found(change):
    follow(wrong(lambda figure: None))
    with pytest.raises(AssertionError):
        follow(wrong(change))


def test_what_a_rank_does_not_have_yet_cannot_be_sent():
    def holdings():
        return Holdings([[(0, 0)], [(0, 1)], []], moves=True)

    holdings().pass_on(0, 0, 2, (0, 0))
    later = holdings()
    later.pass_on(0, 0, 2, (0, 0))
    with pytest.raises(Contradiction, match="rank 2 never gets"):
        holdings().pass_on(0, 2, 0, (0, 1))
    with pytest.raises(Contradiction, match="step 0: rank 2 sends"):
        later.pass_on(0, 2, 1, (0, 0))
    with pytest.raises(Contradiction, match="step 1: rank 0 sends"):
        later.pass_on(1, 0, 1, (0, 0))


def test_pieces_are_what_goes_the_same_way():
    assert draw("allreduce", "recursive_doubling", 4).pieces == 1
    assert draw("allreduce", "ring", 4).pieces == 4
    assert draw("broadcast", "ring", 4).pieces == 1
    assert draw("broadcast", "ring", 4, segments=3).pieces == 3


def test_a_step_is_a_message_in_each_direction_of_a_port():
    assert len(draw("broadcast", "linear", 5).steps) == 4
    assert len(draw("allreduce", "exchange", 4).steps) == 3
    assert len(draw("broadcast", "tree", 8).steps) == 3


def test_what_is_too_wide_for_a_table_is_a_list_of_arrows(text):
    assert "step 1   7>1" in text("allreduce ring -n 8")
    listed = text("allreduce ring -n 16")
    assert "step 1    0 -> 1: chunk 15  1 -> 2: chunk 0" in listed
    assert "14 steps" in text("allreduce ring -n 8")
    figure = draw("allreduce", "ring", 4)
    assert "chunk 3 -> 1" not in figure_text(figure, 60)
    assert "3>1" in figure_text(figure, 60)
    assert "0 -> 1: chunk 3" in figure_text(figure, 25)


def test_an_all_to_all_is_a_transpose_and_a_barrier_is_knowledge(text):
    last = text("alltoall pairwise -n 4").split("step 3")[1]
    assert "from b  b0*           b1            b2            b3" in last
    assert "knows   a+b+c+d*   a+b+c+d*" in text("barrier dissemination -n 4")


def test_two_nodes_are_assumed_where_nothing_is_said(text):
    assert "nodes 2,2" in text("allreduce hierarchical -n 4")
    assert "nodes 1,3" in text("allreduce hierarchical -n 4 --nodes 1,3")
    assert "nodes 4,4,1" in text("allreduce hierarchical -n 9 --nodes 4")


# Segments.


def test_the_simulated_pipeline_takes_the_lectures_formula(text):
    found = segments.sweep("broadcast", "ring", 8, [1, 2, 4, 8, 16, 64], None, None)
    for point in found.points:
        assert point.simulated == pytest.approx(point.formula, rel=1e-12)
        assert point.formula == pytest.approx((8 - 2 + point.segments) / point.segments)
    printed = text("broadcast ring -n 8 --segments 1,2,4,8,16,64")
    assert "whole, hop by hop: (K-1) N/B = 7 N/B" in printed
    assert "64        1.094 N/B  1.094 N/B" in printed


def test_with_latency_there_is_a_best_number_of_segments(text):
    printed = text("broadcast ring -n 8 --segments 1,4,8,64 --bytes 1M --links ndr")
    assert "best S = sqrt((K-2) N beta / alpha) = 6.67" in printed
    times = [float(line.split()[-2]) for line in printed.splitlines() if line.endswith(" us")]
    assert min(times) == times[2]


def test_every_algorithm_with_segments_is_swept():
    having = [pair for pair in ALGORITHMS if "segments" in inspect.signature(FAMILIES[pair[0]][pair[1]]).parameters]
    assert len(having) >= 8
    for collective, algorithm in having:
        for point in segments.sweep(collective, algorithm, 6, [2, 4], None, None).points:
            assert point.simulated <= point.formula * (1 + 1e-12)
            if forms.FORMS[collective, algorithm].bound == "never":
                assert point.simulated == pytest.approx(point.formula, rel=1e-12)


# The choice, and where it changes.


@pytest.mark.parametrize("name", ["host", "device", *links.PRESETS, "nvlink5:LL", "5us/20GB/s"])
def test_the_marked_algorithm_is_the_one_auto_takes_on_these_links(name, text):
    wire = choice.wire(name, 8)
    for nbytes in 8, 10**6, 10**8:
        taken = selection.choose("allreduce", nbytes, 8, choice.allowed("allreduce"), wire.links)
        printed = text(f"allreduce -n 8 --bytes {nbytes} --links {name}")
        marked = [line.split() for line in printed.splitlines() if line.strip().startswith(">")]
        assert [line[1] for line in marked] == [taken.algorithm]
        first = choice.candidates("allreduce", nbytes, 8, wire, taken.predicted)[0]
        assert first.seconds == min(taken.predicted.values())
        parts = first.messages, first.nbytes, first.reduced
        gamma = wire.links.gamma_cached if nbytes <= selection.CACHED else wire.links.gamma
        units = wire.links.alpha, wire.links.beta, gamma
        assert first.seconds == pytest.approx(sum(part * unit for part, unit in zip(parts, units, strict=True)))


def test_it_says_why(text):
    small = text("allreduce -n 48 --bytes 1k --links ndr")
    assert "at this size latency decides" in " ".join(small.split())
    large = text("allreduce -n 48 --bytes 100M --links ndr")
    assert "at this size bandwidth decides" in " ".join(large.split())


def test_what_may_be_taken_is_limited_as_for_a_call(text, monkeypatch):
    monkeypatch.setenv("MPICOLL_ALGORITHM", "allreduce:ring,tree")
    assert "On these links auto takes tree:" in text("allreduce -n 8 --bytes 1k")


def test_several_levels_of_links_are_simulated(text):
    printed = text("allreduce -n 16 --bytes 10M --links nvlink4x8+ndr")
    times = {
        line[0]: float(line[1].replace(",", ""))
        for line in map(str.split, printed.replace(">", " ").splitlines())
        if line[2:] == ["us"]
    }
    assert set(times) == set(FAMILIES["allreduce"])
    assert min(times, key=times.__getitem__) == "hierarchical"


def test_switches_that_reduce_are_named(text):
    assert "Switches that reduce would take" in text("allreduce -n 8 --bytes 1M --links ndr-sharp")


def test_the_winner_changes_where_it_is_said():
    wire = choice.wire("ndr", 1024)
    found = crossover.crossover("allreduce", wire.links)
    for size, changes, pair in zip(crossover.RANKS, found.changes, found.pair, strict=True):
        for names, told in (tuple(FAMILIES["allreduce"]), changes), (crossover.PAIR, pair):
            for (_, before), (nbytes, after) in itertools.pairwise(told):
                winners = [
                    selection.choose("allreduce", n, size, names, wire.links).algorithm for n in (nbytes - 1, nbytes)
                ]
                assert winners == [before, after]
    assert [name for _, name in found.pair[4]] == ["tree", "ring"]  # of 8 ranks
    printed = crossover.crossover_text(found, wire, 80)
    assert "    8 ranks: tree, from 454 kB ring" in printed
    assert max(map(len, printed.splitlines())) <= 80


# Proofs.


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


# The index of the lecture.

IN_THE_SEEDS = {
    "L14, distributed training": "p.5: p.6: p.7, p.9: p.10-11: p.12: p.13: p.14: p.15: p.18: p.19-28: p.22: p.28: "
    "p.29: p.30: p.32: p.34-43: p.35-42: p.43: p.44-45: p.46:",
    "L15, distributed data parallel": "p.8: p.9: p.10-11: p.12: p.13-14: p.15-18: p.20: p.21: p.22: p.23: p.26:",
    "The DDP paper": "25 order never no_sync 256 three",
    "How to read the lectures": "1: 2: 3: 4: tonight:",
    "The lesson, section by section": "1: 2: 3: 4: 5: 6: 7: 8: 9:",
    "Quizzes": "3: 5: 7: 8:",
    "Practice problems": "1: 2:",
    "Hands-on": "1: 2: 3:",
}
ENTRIES = lecture.entries()
COMMANDS = sorted({command for entry in ENTRIES for command in re.findall("`([^`]*)`", entry.command)})


def test_everything_in_the_seeds_is_in_the_index():
    for section, words in IN_THE_SEEDS.items():
        ideas = " ".join(entry.idea for entry in ENTRIES if entry.section == section)
        for word in words.split():
            assert re.search(rf"(^| ){re.escape(word)}", ideas), (section, word)


def lost(entries):
    """The files and tests of the index that do not exist."""
    for entry in entries:
        for place in re.findall("`([^`]*)`", f"{entry.files} {entry.test}"):
            if "/" in place or "." in place:
                found = [base / place for base in (ROOT / "mpicoll", ROOT) if (base / place).exists()]
                if not found:
                    yield place
        if not (entry.idea and entry.files and entry.command and entry.test):
            yield entry


def test_files_and_tests_of_the_index_exist():
    assert not list(lost(ENTRIES))
    assert list(lost([ENTRIES[0]._replace(files="`algorithms/rign.py`")])) == ["algorithms/rign.py"]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_of_the_index_runs(command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    words = command.split()
    if words[0] == "mpirun":  # those of the examples are run in tests/launched
        assert words[1] == "-np"
        assert words[2].isdecimal()
        assert words[3] == "python"
        if words[4] == "-m":
            assert (ROOT / (words[5].replace(".", "/") + ".py")).exists()
            if words[5] == "mpicoll.train":
                train.parse(words[6:])
        else:
            assert (ROOT / words[4]).exists()
        return
    assert words[:2] == ["python", "-m"]
    module = {"mpicoll.explain": explain, "mpicoll.simulate": simulate}[words[2]]
    more = ["--max-size", "1"] if words[3] == "verify" else []
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        assert module.main(words[3:] + more) == 0
    assert printed.getvalue()


def test_the_index_is_printed(text):
    printed = text("lecture", width=140)
    assert "PRACTICE PROBLEMS" in printed
    assert printed.count("python -m mpicoll.explain allreduce ring -n 4\n") >= 3


# Pictures.


@pytest.mark.parametrize(
    "command",
    [
        "allreduce ring -n 4",
        "alltoall bruck -n 5",
        "barrier dissemination -n 3",
        "broadcast ring -n 8 --segments 1,4,16 --links ndr",
        "crossover gather",
    ],
)
def test_a_picture_is_svg_and_the_same_each_time(text, tmp_path, command):
    pytest.importorskip("matplotlib")
    for name in "ab":
        text(f"{command} --svg {tmp_path}/{name}")
    assert ElementTree.parse(tmp_path / "a").getroot().tag.endswith("svg")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_the_picture_of_the_ring_has_every_cell_and_arrow(text, tmp_path):
    pytest.importorskip("matplotlib")
    text(f"allreduce ring -n 4 --svg {tmp_path}/ring.svg")
    words = [
        element.text for element in ElementTree.parse(tmp_path / "ring.svg").iter() if element.tag.endswith("text")
    ]
    figure = draw("allreduce", "ring", 4)
    complete = [state[rank][0] for state in figure.held for rank in range(4) if len(state[rank][0][0].ranks) == 4]
    shown_twice = 1  # the state with which the second strip begins
    assert len(complete) <= words.count("a0+b0+c0+d0") <= len(complete) + 4 * shown_twice
    assert sum(words.count(str(chunk)) for chunk in range(4)) == sum(map(len, figure.steps))
    assert [f"step {step}" in words for step in range(1, 8)] == [True] * 6 + [False]


# Bad input.


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("allreduc", "invalid choice: 'allreduc' (choose from"),
        ("allreduce rign", "allreduce: algorithm is 'rign'; there are 'recursive_doubling', 'tree', 'ring'"),
        ("barrier ring", "barrier: algorithm is 'ring'; there are"),
        ("allreduce -n 8 --links nvlink9", "link 'nvlink9' is unknown; there are nvlink4, nvlink5, pcie5, ndr"),
        ("allreduce -n 64 --links nvlink4", "64 ranks on nvlink4, which joins 8"),
        ("crossover --links nvlink9", "link 'nvlink9' is unknown; there are"),
        ("crossover --links nvlink4x8+ndr", "nvlink4x8+ndr has several levels"),
        ("crossover rign", "invalid choice: 'rign'"),
        ("allreduce ring -n 0", "'0' is not a whole number from 1 up"),
        ("allreduce ring -n -4", "'-4' is not a whole number from 1 up"),
        ("allreduce ring -n 65", "-n is 65; a figure has at most 64 ranks"),
        ("allreduce -n 4 --bytes 0", "0 must be positive"),
        ("allreduce -n 4 --bytes=-1M", "'-1M' is not a positive number such as 500M"),
        ("broadcast ring -n 8 --segments 1,0", "'0' is not a whole number from 1 up"),
        ("broadcast tree -n 8 --segments 1,2", "broadcast: tree has no segments; of this collective ring,"),
        ("broadcast tree -n 8 --segments 2", "tree has no --segments; of this collective ring,"),
        ("broadcast --segments 2", "--segments needs an algorithm; there are"),
        ("allreduce --svg x.svg", "--svg needs an algorithm"),
        ("allreduce ring --segments 1", "ring: segments is 1; it must be at least 2"),
        ("broadcast ring -n 2 --segments 1,9999999", "9999999 on 2 ranks cannot be simulated"),
        ("broadcast ring -n 4 --root 4", "--root is 4; of 4 ranks it is one from 0 to 3"),
        ("allreduce hierarchical -n 4 --nodes 1,2", "--nodes: 1,2 are 3 ranks, -n is 4"),
        ("allreduce recursive_halving -n 4 --near maybe", "'maybe' is neither yes nor no"),
        ("allreduce ring -n 4 --svg /nowhere/at/all.svg", "/nowhere/at/all.svg"),
        ("allreduce ring -n 32 --svg x.svg", "cannot be read in a picture; take fewer ranks than 32"),
        ("verify --max-size 0", "'0' is not a whole number from 1 up"),
        ("lecture L14", "unrecognized arguments: L14"),
    ],
)
def test_a_wrong_argument_is_one_line_that_says_what_would_be_right(capsys, command, message):
    if "/nowhere" in command:
        pytest.importorskip("matplotlib")
    try:
        status = explain.main(command.split())
    except SystemExit as ended:
        status = ended.code
    errors = capsys.readouterr().err
    assert status == 2
    assert errors.count("\n") == 1
    assert message in errors


def test_without_matplotlib_a_picture_names_what_is_missing(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert explain.main(["allreduce", "ring", "--svg", "picture.svg"]) == 2
    assert capsys.readouterr().err.strip().endswith("pip install 'mpicoll[plot]'")
