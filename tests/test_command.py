"""What all commands share: one line for what is wrong, from rank 0 alone."""

import pytest

from mpicoll import command


def positive(text):
    if int(text) < 1:
        raise ValueError(f"{text} is less than 1")
    return int(text)


def ended(parser, arguments, capsys):
    """How parsing ends: the status, and what was printed."""
    with pytest.raises(SystemExit) as end:
        parser.parse_args(arguments)
    return end.value.code, *capsys.readouterr()


@pytest.fixture
def parser():
    made = command.Parser(prog="mpicoll.some", description="Some.\n\n    kept as it is")
    made.add_argument("--many", type=command.of(positive), default=3, help="how many")
    return made


def test_what_is_wrong_is_one_line(parser, capsys):
    status, out, err = ended(parser, ["--many", "0"], capsys)
    assert (status, out) == (2, "")
    assert err == "mpicoll.some: error: argument --many: 0 is less than 1 (--help lists the arguments)\n"
    assert parser.parse_args(["--many", "5"]).many == 5


def test_help_has_defaults_and_keeps_lines(parser, capsys):
    status, out, err = ended(parser, ["--help"], capsys)
    assert (status, err) == (0, "")
    assert "\n    kept as it is\n" in out
    assert "how many (default: 3)" in out


def test_other_ranks_say_nothing_and_do_not_fail(parser, capsys, monkeypatch):
    monkeypatch.setattr(command.runtime, "launched_rank", lambda: 1)
    assert ended(parser, ["--many", "0"], capsys) == (0, "", "")
    assert ended(parser, ["--help"], capsys) == (0, "", "")
    assert command.fail("mpicoll.some", 1, "no") == 0
    assert capsys.readouterr() == ("", "")
