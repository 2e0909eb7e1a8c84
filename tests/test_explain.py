"""What `python -m mpicoll.explain` says of segments, choices and the lecture; and what it says of wrong arguments."""

import contextlib
import inspect
import io
import itertools
import re
import sys
from pathlib import Path

import pytest

import mpicoll
from mpicoll import explain, links, selection, simulate, tuning
from mpicoll.algorithms import FAMILIES
from mpicoll.explaining import candidates, choice, crossover, forms, lecture, segments
from mpicoll.pricing import HOST
from mpicoll.rules import Rule
from mpicoll.simulation.units import digits
from mpicoll.training import options

ROOT = Path(mpicoll.__file__).parent.parent
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
    wiring = choice.wiring(name, 8)
    for nbytes in 8, 10**6, 10**8:
        taken = selection.choose("allreduce", nbytes, (0,) * 8, choice.allowed("allreduce"), wiring.links)
        printed = text(f"allreduce -n 8 --bytes {nbytes} --links {name}")
        marked = [line.split() for line in printed.splitlines() if line.strip().startswith(">")]
        assert [line[1] for line in marked] == [taken.algorithm]
        first = candidates.candidates("allreduce", nbytes, 8, wiring.links, taken.predicted)[0]
        assert first.seconds == min(taken.predicted.values())
        parts = first.messages, first.nbytes, first.reduced
        units = wiring.links.node.alpha, wiring.links.node.beta, wiring.links.rate(nbytes)
        assert first.seconds == pytest.approx(sum(part * unit for part, unit in zip(parts, units, strict=True)))


def test_it_says_why(text):
    small = text("allreduce -n 48 --bytes 1k --links ndr")
    assert "at this size latency decides" in " ".join(small.split())
    large = text("allreduce -n 48 --bytes 100M --links ndr")
    assert "at this size bandwidth decides" in " ".join(large.split())


def test_where_bytes_are_equal_the_reduction_decides(text):
    said = " ".join(text("allreduce -n 2 --bytes 1M --links host").split())
    assert "It has 2 messages one after the other, 1 n bytes and 0.5 n to reduce" in said
    assert "recursive_doubling has fewer messages (1), but more to reduce (1 n): at this size the reduction" in said
    assert "No algorithm takes less than 0.1 ms: latency 0.002 ms, bandwidth 0.1 ms, arithmetic" in said  # one unit


def test_what_is_not_compared_is_not_explained(text, monkeypatch, tmp_path):
    monkeypatch.setenv("MPICOLL_ALGORITHM", "allreduce:ring")
    said = " ".join(text("allreduce -n 8 --bytes 1M --links ndr").split())
    assert said.endswith("of those that MPICOLL_ALGORITHM allows (ring).")
    monkeypatch.setenv("MPICOLL_ALGORITHM", "")
    file, links = tmp_path / "t.json", tuning.Measured(HOST.node, None, False, HOST.gamma, HOST.gamma_cached, 1 << 18)
    entry = tuning.Entry("an MPI", "a host", "2026-11-30", links, (0, 0), {"allreduce": (Rule(None, "linear"),)})
    tuning.save(file, "8", entry)
    monkeypatch.setenv("MPICOLL_TUNING", str(file))
    said = " ".join(text("allreduce -n 8 --bytes 1M", width=200).split())
    assert "On these links auto takes linear: the fastest as measured, any size:" in said
    assert "messages one after the other" not in said
    assert f"by the model alone, {file} is not looked at" in " ".join(text("crossover", width=200).split())
    file.write_text('{"schema": 1, "layouts": {}}')
    assert f"{file} has no layouts" in " ".join(text("allreduce -n 8", width=200).split())


def test_winners_go_by_their_initials():
    found = crossover.Crossover("allgather", [["ring", "recursive_doubling", "pat", "pairwise", "bruck"]], [], [])
    assert crossover._letters(found) == {
        "recursive_doubling": "rd",
        "ring": "r",
        "pairwise": "p",
        "bruck": "b",
        "pat": "pa",
    }


def test_what_may_be_taken_is_limited_as_for_a_call(text, monkeypatch):
    monkeypatch.setenv("MPICOLL_ALGORITHM", "allreduce:ring,tree")
    assert "On these links auto takes tree:" in text("allreduce -n 8 --bytes 1k")


def test_several_levels_of_links_are_simulated(text):
    printed = text("allreduce -n 16 --bytes 10M --links nvlink4x8+ndr")
    times = {
        line[0]: float(line[1].replace(",", ""))
        for line in map(str.split, printed.replace(">", " ").splitlines())
        if line[2:4] == ["us", "nvlink4"]
    }
    assert set(times) == set(FAMILIES["allreduce"])
    assert min(times, key=times.__getitem__) == "hierarchical"
    assert "(ndr, a NIC for each rank), and takes hierarchical:" in " ".join(printed.split())
    (hierarchical,) = re.findall(r">  hierarchical.*\n +ndr +(\d+) +([\d.]+)", printed)
    assert hierarchical == ("4", digits(2 * 1 / 2 / 8))  # 3 segments and 1; 2(q-1)/q n/m of q nodes with m ranks


def test_three_levels_of_links_are_told_apart(text):
    printed = text("allreduce -n 8 --bytes 1M --links pcie5x2+1*pcie5x2+10gbe")
    assert printed.count("pcie5  ") == 2 * len(FAMILIES["allreduce"])
    assert "in a node (all like the slowest) and between nodes (10gbe, one NIC for a node)" in " ".join(printed.split())


def test_chunks_that_must_be_of_one_length_are_on_links_of_several_levels_too(text):
    assert "bruck" in text("alltoall -n 8 --bytes 1001 --links nvlink4x4+10gbe")


def test_switches_that_reduce_are_named(text):
    assert "Switches that reduce would take" in text("allreduce -n 8 --bytes 1M --links ndr-sharp")


def test_the_winner_changes_where_it_is_said():
    wiring = choice.wiring("ndr", 1024)
    found = crossover.crossover("allreduce", wiring.links)
    for size, changes, pair in zip(crossover.RANKS, found.changes, found.pair, strict=True):
        for (_, before), (nbytes, after) in itertools.pairwise(changes):
            for n, winner in (nbytes - 1, before), (nbytes, after):
                names = tuple(FAMILIES["allreduce"])
                assert selection.choose("allreduce", n, (0,) * size, names, wiring.links).algorithm == winner
        for (_, before), (nbytes, after) in itertools.pairwise(pair):
            for n, winner in (nbytes - 1, before), (nbytes, after):
                tree, ring = (
                    crossover.lesson_time(wiring.links, "allreduce", name, n, size) for name in crossover.PAIR
                )
                assert (tree <= ring) == (winner == "tree")
    assert [name for _, name in found.pair[4]] == ["tree", "ring"]  # of 8 ranks
    printed = crossover.crossover_text(found, wiring, 80)
    assert "    8 ranks: tree, from 242 kB ring" in printed  # 8 alpha = (6 - 7/4) n beta + (3 - 7/8) n gamma
    assert max(map(len, printed.splitlines())) <= 80


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
                options.parse(words[6:], "")
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
        ("allreduce ring -n 4 --svg /nowhere/at/all.svg", "--svg /nowhere/at/all.svg: there is no folder /nowhere/at"),
        ("crossover --svg /nowhere/at/all.svg", "--svg /nowhere/at/all.svg: there is no folder /nowhere/at"),
        ("allreduce ring -n 4 --svg x.pdf", "--svg x.pdf: the name ends in .svg or .png"),
        ("barrier --bytes 8", "unrecognized arguments: --bytes"),
        ("allreduce ring --bytes 1M", "--bytes: times depend on --links, too"),
        ("broadcast -n 4 --root 1", "--root needs an algorithm"),
        ("broadcast ring -n 4 --root 1 --segments 1,2", "--root is for a figure, which has one number of --segments"),
        ("allreduce -n 4 --links 0us/0GB/s", "link '0us/0GB/s' carries nothing"),
        ("allreduce ring -n 32 --svg x.svg", "cannot be read in a picture; take fewer ranks than 32"),
        ("verify --max-size 0", "'0' is not a whole number from 1 up"),
        ("lecture L14", "unrecognized arguments: L14"),
    ],
)
def test_a_wrong_argument_is_one_line_that_says_what_would_be_right(capsys, command, message):
    if "--svg" in command:
        pytest.importorskip("matplotlib")
    try:
        status = explain.main(command.split())
    except SystemExit as ended:
        status = ended.code
    printed = capsys.readouterr()
    assert status == 2
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert message in printed.err


@pytest.mark.parametrize(
    "command", ["allreduce ring -n 4", "crossover --links ndr", "broadcast ring -n 4 --segments 1,2"]
)
def test_a_picture_is_what_its_name_says(text, tmp_path, command):
    pytest.importorskip("matplotlib")
    for name, start in ("a.svg", b"<?xml"), ("a.png", b"\x89PNG"):
        text(f"{command} --svg {tmp_path / name}")
        assert (tmp_path / name).read_bytes().startswith(start)


def test_without_matplotlib_a_picture_names_what_is_missing(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert explain.main(["allreduce", "ring", "--svg", "picture.svg"]) == 2
    assert capsys.readouterr().err.strip().endswith("pip install 'mpicoll[plot]'")
