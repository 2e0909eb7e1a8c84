"""The type checker knows the language: it accepts an algorithm, and finds what is wrong in one."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ALGORITHM = """
from mpicoll.language import Algorithm, Array, Comm, Op


def allreduce(comm: Comm, sendbuf: Array, result: Array, op: Op) -> Algorithm:
    peer = comm.size - 1 - comm.rank
    halves = sendbuf[: len(sendbuf) // 2], sendbuf[len(sendbuf) // 2 :]
    got = comm.scratch(sendbuf)
    sends = [comm.Isend(half, peer) for half in halves]
    yield *sends, comm.Irecv(got[: len(halves[0])], peer), comm.Irecv(got[len(halves[0]) :], peer)
    yield op(result, sendbuf, got) if comm.rank < peer else op(result, got, sendbuf)
    yield op.finish(result), None
    yield exchange(comm.lane(0), result, peer), exchange(comm.lane(1), got, peer)
    yield from exchange(comm, got, peer)


def exchange(comm: Comm, buf: Array, peer: int) -> Algorithm:
    yield comm.Isend(buf, peer)
"""


@pytest.fixture(scope="module")
def errors(tmp_path_factory):
    """errors(old, new): what mypy says of the algorithm above with `new` for `old`, as (text of the line, error)."""
    folder = tmp_path_factory.mktemp("types")

    def check(old="", new=""):
        assert not old or ALGORITHM.count(old) == 1
        text = ALGORITHM.replace(old, new) if old else ALGORITHM
        file = folder / f"algorithm{len(list(folder.iterdir()))}.py"  # a new name: mypy caches by size and second
        file.write_text(text)
        options = ["--config-file", ROOT / "pyproject.toml", "--cache-dir", folder / "cache", "--no-error-summary"]
        command = [sys.executable, "-m", "mypy", *options, file]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        found = re.findall(r"^\S*\.py:(\d+): error: .*\[([\w-]+)\]$", done.stdout, re.MULTILINE)
        assert done.returncode == bool(found), done.stdout + done.stderr
        return {(text.splitlines()[int(line) - 1].strip(), code) for line, code in found}

    return check


def test_an_algorithm_has_no_errors(errors):
    assert errors() == set()


SEND = "yield comm.Isend(buf, peer)"


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        pytest.param(SEND, "return [comm.Isend(buf, peer)]", "return-value", id="a_list_for_a_generator"),
        pytest.param(SEND, 'yield comm.Isend(buf, "right")', "arg-type", id="a_str_for_a_rank"),
        pytest.param(SEND, "yield comm.Isend(peer, buf)", "arg-type", id="rank_before_array"),
        pytest.param(SEND, "yield [comm.Isend(buf, peer)]", "misc", id="a_list_for_a_round"),
        pytest.param(SEND, "yield comm.Isend(buf + buf, peer)", "operator", id="arithmetic_on_an_array"),
        pytest.param(SEND, "comm.barrier()", "attr-defined", id="what_a_comm_cannot_do"),
        pytest.param("yield op.finish(result), None", "yield op.finish(result), peer", "misc", id="a_rank_in_a_round"),
        pytest.param("exchange(comm, got, peer)", "exchange(comm, got)", "call-arg", id="an_argument_is_missing"),
    ],
)
def test_an_error_is_found(errors, old, new, code):
    assert code in {found for line, found in errors(old, new) if new in line}
