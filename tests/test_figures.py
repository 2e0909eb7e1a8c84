"""The lecture's figures: what they show can be followed with pen and paper, and what is wrong in one is found."""

import copy
import itertools
from xml.etree import ElementTree

import pytest

from mpicoll import explain
from mpicoll.algorithms import FAMILIES
from mpicoll.explaining.figure import Part, draw
from mpicoll.explaining.holdings import Contradiction, Holdings
from mpicoll.explaining.text import figure_text

each_algorithm = pytest.mark.parametrize(
    ("collective", "algorithm"), [(collective, name) for collective, family in FAMILIES.items() for name in family]
)
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
    assert "steps       6 with S = 1, as in the lesson; here S = 2: 9 messages in turn" in lines
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
    for name in "a.svg", "b.svg":
        text(f"{command} --svg {tmp_path}/{name}")
    assert ElementTree.parse(tmp_path / "a.svg").getroot().tag.endswith("svg")
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


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
