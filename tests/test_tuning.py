"""The tuning table: written, read, looked up; what is wrong with one is told with its line."""

import json
import math

import pytest

from mpicoll import tuning
from mpicoll.cost import Wire
from mpicoll.explain import main
from mpicoll.pricing import HOST, Links
from mpicoll.rules import Rule
from mpicoll.tuning import Entry, Measured, Source, decide, layout, parse, save, tuned
from mpicoll.tuning.file import dumps

WIRE = Wire(2e-6, 1.25e-10, 131072, 5e-6, 9e-11)
LINKS = Measured(WIRE, None, False, 1e-10, 2.5e-11, 1 << 19)
RULES = {
    "allreduce": (Rule(16384, "recursive_doubling"), Rule(None, "ring")),
    "barrier": (Rule(None, "dissemination"),),
}
ENTRY = Entry("MPICH 5.0.2", "a", "2026-09-25", LINKS, (32768, 524288), RULES)
CLUSTER = ENTRY._replace(links=LINKS._replace(network=Wire(3e-5, 8e-9), shared=True), host="b")
HERE = "MPICH 5.0.2", ["a", "b", "c"]  # the MPI and the hosts of the ranks that ask
TABLE = {"4": ENTRY, "2+2": CLUSTER}


def test_a_table_is_read_as_it_was_written():
    assert parse(dumps(TABLE), "t") == TABLE
    assert parse(dumps({}), "t") == {}


def test_a_table_is_short_and_has_a_line_for_each_rule():
    text = dumps(TABLE)
    assert json.loads(text)["schema"] == 1
    assert '\n    "allreduce": [[16384, "recursive_doubling"], [null, "ring"]],\n' in text
    assert '\n    "network": {"alpha": 3e-05, "beta": 8e-09},\n' in text  # one regime
    assert max(map(len, text.splitlines())) < 120


def broken(old, new):
    text = dumps(TABLE)
    assert old in text
    return text.replace(old, new, 1)


@pytest.mark.parametrize(
    ("old", "new", "line", "told"),
    [
        ('"schema": 1', '"schema": 2', 2, "schema: 2 is not 1, which this mpicoll reads; tune again"),
        ('"gamma": 1e-10,', '"gamma": 1e-10', 13, "Expecting ',' delimiter"),
        ('"gamma": 1e-10', '"gamma": -1', 12, "gamma: -1 is no number from 0 up"),
        ('"gamma": 1e-10', '"gamma": NaN', 12, "gamma: nan is no number from 0 up"),
        ('"alpha": 3e-05', '"alpha": "fast"', 10, "alpha: 'fast' is no number from 0 up"),
        ('"beta": 8e-09', '"beta": 0', 10, "beta: is 0, which no link can do"),
        ('"beta": 8e-09', '"betta": 8e-09', 10, "network: an object with alpha, beta is expected, and no more"),
        ('"shared": true', '"shared": 1', 11, "shared: 1 is neither true nor false"),
        ('"segment": 524288', '"segment": 0.5', 14, "segment: 0.5 is no whole number from 0 up"),
        ('"segment": 524288', '"segment": 0', 14, "segment: is less than a byte"),
        ('"ring"', '"rign"', 18, "allreduce: 'rign' is no algorithm; there are recursive_doubling, "),
        ('"allreduce"', '"allredcue"', 18, "allredcue: is no collective; there are broadcast, "),
        ("[[16384,", "[[null,", 18, "allreduce: None is no whole number from 0 up"),
        ("[null, ", "[20000, ", 18, r"allreduce: \[16384, 20000\] are not ascending numbers of bytes, then null"),
        ('[[16384, "rec', '[[9, "ring"], [9, "rec', 18, "allreduce: .* are not ascending"),
        ('[[null, "dissemination"]]', "[]", 19, "barrier: .* is expected"),
        ('[[null, "dissemination"]]', '["dissemination"]', 19, "barrier: .* is expected"),
        ("[32768, 524288]", "[32768]", 16, r"copied: \[32768\] is not two numbers of bytes"),
        ('"2+2"', '"two"', 4, "two: is no layout; they are like"),
        ('"host": "b"', '"host": 7', 6, "host: 7 is no text"),
        ('"date"', '"day"', 4, r"2\+2: an object with mpi, host, date, .* is expected"),
    ],
)
def test_what_is_wrong_is_told_with_file_and_line(old, new, line, told):
    with pytest.raises(ValueError, match=f"^tuning table t.json, line {line}: {told}"):
        parse(broken(old, new), "t.json")


@pytest.mark.parametrize("text", ["[]", "3", '{"layouts": {}}'])
def test_what_is_no_table_at_all_is_told(text):
    with pytest.raises(ValueError, match=r"^tuning table t, line 1: None is not 1, which this mpicoll reads"):
        parse(text, "t")


def test_layouts_of_ranks():
    assert layout((0, 0, 0)) == "3"
    assert layout((0, 0, 1, 1, 2)) == "2+2+1"
    assert layout((0, 1, 0, 1)) == "0,1,0,1"
    assert layout((0, 1, 2)) == "1+1+1"


def test_ranks_in_a_layout_that_was_measured_get_its_rules():
    found = decide(TABLE, (0, 0, 0, 0), "t.json", *HERE)
    assert found.rules.source == "t.json, layout 4, measured on a with MPICH 5.0.2 on 2026-09-25"
    assert found.rules.find("allreduce", 16384).algorithm == "recursive_doubling"
    assert found.rules.find("allreduce", 16385).algorithm == "ring"
    assert found.links == Links(WIRE, HOST.network, *LINKS[2:])  # not measured: there is one node
    assert decide(TABLE, (0, 0, 1, 1), "t.json", *HERE).links == Links(*CLUSTER.links)


def test_ranks_in_another_layout_get_the_links_of_the_one_most_like_theirs():
    found = decide({**TABLE, "64": ENTRY._replace(host="c")}, (0,) * 6, "t.json", *HERE)
    assert found.entry.host == "a"
    assert found.rules.find("allreduce", 8) is None
    assert found.rules.source.startswith("t.json, which has no layout 6, but 4, measured on a")
    assert decide({**TABLE, "64": ENTRY._replace(host="c")}, (0,) * 48, "t", *HERE).entry.host == "c"
    assert decide(TABLE, (0, 1, 0, 1), "t", *HERE).entry.host == "b"  # several nodes, as there
    assert decide({}, (0, 0), "t", *HERE) is None


def test_another_mpi_or_host_is_told():
    def source(mpi, hosts):
        return decide(TABLE, (0, 0, 0, 0), "t", mpi, hosts).rules.source

    assert source("Open MPI 5.0.11", ["a"]).endswith("(this is a with Open MPI 5.0.11)")
    assert source("MPICH 5.0.2", ["z"]).endswith("(this is z with MPICH 5.0.2)")
    assert source("", ["z"]).endswith("(this is z)")
    assert source("", ["a"]).endswith("with MPICH 5.0.2 on 2026-09-25")


def test_a_source_without_a_table_or_with_a_problem(tmp_path, monkeypatch):
    assert tuned(Source(), (0, 0), *HERE) is None
    monkeypatch.setenv(tuning.VARIABLE, str(tmp_path / "t.json"))
    with pytest.raises(ValueError, match=r"t.json: No such file"):
        tuned(tuning.look(), (0, 0), *HERE)
    (tmp_path / "t.json").write_text("{")
    with pytest.raises(ValueError, match=r"t.json, line 1: Expecting"):
        tuned(tuning.look(), (0, 0), *HERE)
    (tmp_path / "t.json").write_text(dumps(TABLE))
    assert tuned(tuning.look(), (0,) * 4, *HERE).entry == ENTRY


def test_tuning_again_adds_a_layout_or_replaces_it(tmp_path):
    file = tmp_path / "new" / "folder" / "t.json"
    save(file, "4", ENTRY)
    save(file, "2+2", CLUSTER)
    assert parse(file.read_text(), str(file)) == TABLE
    assert [path.name for path in file.parent.iterdir()] == ["t.json"]  # nothing is left over
    other = {"reduce": (Rule(None, "tree"),)}
    save(file, "4", ENTRY._replace(rules=other, date="2026-09-26"))  # some collectives only: the others' rules stay
    assert parse(file.read_text(), "t")["4"].rules == {**RULES, **other}
    save(file, "4", ENTRY._replace(rules=other, mpi="Open MPI 5.0.11"))  # but not of another MPI
    assert parse(file.read_text(), "t")["4"].rules == other
    assert parse(file.read_text(), "t")["2+2"] == CLUSTER


def test_a_file_that_is_no_table_is_not_overwritten(tmp_path):
    file = tmp_path / "t.json"
    file.write_text('{"schema": 99}')
    with pytest.raises(ValueError, match="line 1: schema: 99 is not 1"):
        save(file, "4", ENTRY)
    assert file.read_text() == '{"schema": 99}'


def test_which_file_is_used(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv(tuning.VARIABLE)
    own = tmp_path / "mpicoll" / "tuning.json"
    assert tuning.default_file() == own
    assert tuning.chosen_file() is None
    save(own, "4", ENTRY)
    assert tuning.chosen_file() == own
    monkeypatch.setenv(tuning.VARIABLE, "")
    assert tuning.chosen_file() == own
    monkeypatch.setenv(tuning.VARIABLE, "none")
    assert tuning.chosen_file() is None
    monkeypatch.setenv(tuning.VARIABLE, "elsewhere.json")
    assert str(tuning.chosen_file()) == "elsewhere.json"
    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.setenv("HOME", "/home/someone")
    assert str(tuning.default_file()) == "/home/someone/.config/mpicoll/tuning.json"


def test_a_file_that_is_not_there_or_no_text_is_told(tmp_path):
    with pytest.raises(ValueError, match=r"tuning table .*none.json: No such file.*MPICOLL_TUNING=none: none"):
        tuning.read(tmp_path / "none.json")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="it is no text"):
        tuning.read(tmp_path / "binary")


@pytest.fixture
def explain(tmp_path, monkeypatch, capsys):
    """explain(...): exit status, and what `python -m mpicoll.explain` prints where TABLE is in use."""
    (tmp_path / "t.json").write_text(dumps(TABLE))
    monkeypatch.setenv(tuning.VARIABLE, str(tmp_path / "t.json"))
    monkeypatch.setenv("COLUMNS", "300")

    def run(*arguments):
        status = main(list(arguments))
        printed = capsys.readouterr()
        return status, printed.out + printed.err

    return run


def test_explain_shows_table_and_rule(explain, tmp_path):
    status, text = explain("allreduce", "-n", "4", "--bytes", "16384")
    assert status == 0
    assert "tuned: alpha 2 us, 1/beta 8 GB/s, in messages above 131,072 bytes 5 us, 11.1 GB/s (as measured)" in text
    assert "auto takes recursive_doubling: the fastest as measured, up to 16 KiB: " in text
    assert f" {tmp_path}/t.json, layout 4, measured on a with MPICH 5.0.2 on 2026-09-25" in text
    assert "auto takes ring: the fastest as measured, above 16 KiB: " in explain("allreduce", "-n", "4")[1]


def test_explain_of_what_was_not_measured_takes_the_tables_links(explain):
    text = explain("allreduce", "-n", "6")[1]
    assert "tuned: alpha 2 us" in text
    assert "t.json, which has no layout 6, but 4, measured on a" in text
    assert "as this library takes them" in explain("allreduce", "-n", "4", "--links", "host")[1]


def test_explain_of_a_broken_table(explain, tmp_path):
    (tmp_path / "t.json").write_text("{,")
    status, text = explain("allreduce", "-n", "4")
    assert status == 2
    assert f"error: tuning table {tmp_path}/t.json, line 1: " in text


def test_what_was_not_measured_is_infinite_or_missing():
    assert parse(dumps(TABLE), "t")["2+2"].links.network.eager == math.inf
    assert parse(dumps(TABLE), "t")["4"].links.network is None


def test_what_cannot_be_saved_leaves_nothing_behind(tmp_path):
    file = tmp_path / "t.json"
    save(file, "4", ENTRY)
    before = file.read_text()
    with pytest.raises(TypeError):
        save(file, "2", ENTRY._replace(host=object()))
    assert [path.name for path in tmp_path.iterdir()] == ["t.json"]
    assert file.read_text() == before
    (tmp_path / "folder").mkdir()
    with pytest.raises(ValueError, match="Is a directory"):
        save(tmp_path / "folder", "4", ENTRY)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "t.json"]


def test_a_table_that_cannot_take_its_place_leaves_nothing_behind(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError("no")

    monkeypatch.setattr("pathlib.Path.replace", refuse)
    with pytest.raises(OSError, match="no"):
        save(tmp_path / "t.json", "4", ENTRY)
    assert list(tmp_path.iterdir()) == []
