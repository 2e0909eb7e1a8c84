"""What mpicoll.bench is made of, without MPI messages: sizes, exact numbers, guarded buffers, formulas, table, diff."""

import functools
import itertools
import json
import re
from types import SimpleNamespace

import numpy as np
import pytest

from mpicoll import bench
from mpicoll.arrays import parts, undefined
from mpicoll.benching import diff, options, overlap, picture, table
from mpicoll.benching.buffers import GUARD, Buffers, needed, rows_for
from mpicoll.benching.cases import Case, pattern_of, places, whole
from mpicoll.benching.contenders import Ours
from mpicoll.benching.pattern import PERIOD, UFUNCS, mistakes, write


@pytest.mark.parametrize(
    ("text", "nbytes"), [("8", 8), ("64K", 65536), ("16m", 1 << 24), ("8G", 1 << 33), ("1.5K", 1536), ("2MiB", 2 << 20)]
)
def test_sizes_are_binary(text, nbytes):
    assert options.parse_size(text) == nbytes


@pytest.mark.parametrize("text", ["", "-8", "8X", "K", "0", "0.1", "1e3", "8 8"])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(ValueError, match=r"size|byte"):
        options.parse_size(text)


def test_sizes_go_by_factor_or_step():
    assert options.sizes(8, 64, factor=2) == [8, 16, 32, 64]
    assert options.sizes(8, 70, factor=8) == [8, 64]
    assert options.sizes(8, 30, step=8) == [8, 16, 24]
    assert options.sizes(8, 8, factor=2) == [8]
    for wrong in ((16, 8, 2), (8, 16, 1), (8, 16, None)):
        with pytest.raises(ValueError, match=r"-[bf] "):
            options.sizes(*wrong)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("allreduce -g 4 -t 2", "start mpirun -np 8 python -m mpicoll.bench allreduce"),
        ("allreduce --compare mpi,smpi", "'smpi' is unknown; there are mpi, gloo, nccl"),
        ("allreduce -b 1M -e 1K", "-b 1048576 is more than -e 1024"),
        ("allreduce -b 8X", "'8X' is no size"),
        ("allreduce -f 1", "-f 1 never leads from -b 8"),
        ("allreduce -f 2 -i 8", "give one of them"),
        ("allreduce -d quad", "-d 'quad' is no type; there are int8"),
        ("allreduce -n 0", "0 is not a number from 1 up"),
        ("allreduce --plot a.pdf", "ends in .svg or .png"),
        ("allreduce --persistent --nonblocking", "not allowed with"),
        ("barrier -e 1M", "barrier has no bytes: leave out -e 1048576"),
        ("barrier -d int8", "barrier has no bytes: leave out -d int8"),
        ("allreduce -r 1", "allreduce has no root: leave out -r 1"),
        ("allgather -o max", "allgather has no reduction: leave out -o max"),
        ("sendrecv -o max", "sendrecv has no reduction: leave out -o max"),
        ("sendrecv --persistent", "it has no persistent form"),
        ("diff a.jsonl", "B.jsonl"),
        ("allreduce diff", "unrecognized arguments: diff"),
    ],
)
def test_a_wrong_argument_is_told_in_one_line(capsys, arguments, told):
    with pytest.raises(SystemExit) as ended:
        bench.parse(arguments.split())
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert told in error
    assert error.count("\n") == 1


# Exact numbers.

KINDS = [np.dtype(name) for name in options.TYPES.values()]
REDUCTIONS = [(op, dtype) for op in options.OPS for dtype in KINDS if not undefined(op, dtype)]


def contribution(pattern, rank, shift):
    content = Case("allreduce", pattern.tiles["given"].dtype, "sum", None, rank, rank + 1, PERIOD).given(pattern)
    array = np.empty(PERIOD, pattern.tiles["given"].dtype)
    write(array, content, pattern.tiles, shift)
    return array


@pytest.mark.parametrize(("op", "dtype"), REDUCTIONS, ids=str)
def test_reductions_are_exact_in_any_order(op, dtype):
    for size in (2, 5, 20):
        pattern = pattern_of(dtype, op, size, np.asarray)
        given = [contribution(pattern, rank, 3) for rank in range(size)]
        wanted = np.empty(PERIOD, dtype)
        case = Case("allreduce", dtype, op, None, 0, size, PERIOD)
        write(wanted, case.wanted(pattern), pattern.tiles, 3)
        orders = [range(size), range(size)[::-1], sorted(range(size), key=lambda rank: rank * 7 % size)]
        for order in orders:
            result = functools.reduce(UFUNCS[op], [given[rank] for rank in order])
            if op == "avg":
                np.divide(parts(result), size, out=parts(result))
            assert (result == wanted).all()
        pairs = [
            UFUNCS[op](*pair) if len(pair) > 1 else pair[0] for pair in (given[i : i + 2] for i in range(0, size, 2))
        ]
        if op != "avg":
            assert (functools.reduce(UFUNCS[op], pairs) == wanted).all()


def test_sums_of_int8_wrap():
    pattern = pattern_of(np.dtype("int8"), "sum", 3, np.asarray)
    true = sum(contribution(pattern, rank, 0).astype(int) for rank in range(3))
    assert abs(true).max() > 127
    assert (true.astype("int8") == pattern.tiles["reduced"][:PERIOD]).all()


@pytest.mark.parametrize("dtype", KINDS, ids=str)
def test_poison_is_nowhere_right(dtype):
    pattern = pattern_of(dtype, "max" if dtype.kind != "c" else "sum", 2, np.asarray)
    for name, tile in pattern.tiles.items():
        with np.errstate(invalid="ignore"):  # not all bits of a longdouble are a number
            assert (tile != pattern.poison[name]).all(), name


# Guarded buffers: what a perfect collective does is right, and what a broken one does is found.


def by_hand(name, given, size, root):
    """The results of all ranks from what all give, the slow way; None where there is none."""
    whole_ = None if any(array is None for array in given) else np.concatenate(given)
    total = sum(array.astype(int) for array in given) if whole_ is not None else None

    def parts(array):
        return np.split(array, size)

    return {
        "broadcast": lambda: [given[root]] * size,
        "reduce": lambda: [total if rank == root else None for rank in range(size)],
        "allreduce": lambda: [total] * size,
        "reduce_scatter": lambda: parts(total),
        "allgather": lambda: [whole_] * size,
        "gather": lambda: [whole_ if rank == root else None for rank in range(size)],
        "scatter": lambda: parts(given[root]),
        "alltoall": lambda: [np.concatenate([parts(array)[rank] for array in given]) for rank in range(size)],
        "sendrecv": lambda: [given[rank - 1] for rank in range(size)],
    }[name]()


@pytest.mark.parametrize("name", [name for name in options.MEASURED if name != "barrier"])
def test_what_ranks_get_follows_from_what_they_give(name):
    size, root, dtype = 3, 1, np.dtype("int32")
    op = "sum" if name in options.REDUCING else None
    count = whole(name, 400, 4, size)
    assert count == (99 if name in ("reduce_scatter", "allgather", "alltoall", "gather", "scatter") else 100)
    for in_place in places(name):
        pattern = pattern_of(dtype, op, size, np.asarray)
        cases = [
            Case(name, dtype, op, root if name in options.ROOTED else None, rank, size, count) for rank in range(size)
        ]
        buffers = [Buffers(case, in_place, pattern, 2) for case in cases]
        for mine in buffers:
            mine.fill(5)
        for row in range(2):
            given = [None if mine.send[row] is None else mine.send[row].copy() for mine in buffers]
            for mine, result in zip(buffers, by_hand(name, given, size, root), strict=True):
                assert (mine.recv[row] is None) == (result is None)
                if result is not None:
                    assert (in_place and mine.case.rank == root) or not (mine.recv[row] == result).all()
                    mine.recv[row][...] = result
        assert [mine.check(5) for mine in buffers] == [[]] * size


def filled(in_place=False, count=10, rows=3):
    pattern = pattern_of(np.dtype("float32"), "sum", 2, np.asarray)
    buffers = Buffers(Case("allreduce", np.dtype("float32"), "sum", None, 0, 2, count), in_place, pattern, rows)
    buffers.fill(0)
    for row in range(rows):
        write(buffers.recv[row], buffers.wanted, pattern.tiles, row)
    assert buffers.check(0) == []
    return buffers


@pytest.mark.parametrize("in_place", [False, True])
def test_a_wrong_element_is_found_and_named(in_place):
    buffers = filled(in_place)
    right = float(buffers.recv[1][7])
    buffers.recv[1][7:9] = right + 1, np.nan
    (found,) = buffers.check(0)
    assert (found.row, found.wrong) == (1, 2)
    assert found.text == f"index 7: expected {right}, got {right + 1}"


def test_a_wrong_element_far_behind_is_found():
    buffers = filled(count=200_000, rows=1)
    buffers.recv[0][150_001] += 1
    (found,) = buffers.check(0)
    assert found.text.startswith("index 150001: expected ")


@pytest.mark.parametrize("in_place", [False, True])
def test_nothing_done_and_a_stale_result_are_found(in_place):
    buffers = filled(in_place)
    stale = [array.copy() for array in buffers.recv]
    buffers.fill(3)
    assert [found.row for found in buffers.check(3)] == [0, 1, 2]
    for array, old in zip(buffers.recv, stale, strict=True):
        array[...] = old
    assert [found.row for found in buffers.check(3)] == [0, 1, 2]


def test_what_is_written_outside_is_found_once():
    buffers = filled()
    after, before = buffers.recv[1], buffers.recv[2]
    np.lib.stride_tricks.as_strided(after, (11,))[10] = 1.0
    assert [found.text for found in buffers.check(0)] == [
        "guard after recvbuf: byte +0 from its end: expected 0xa5, got 0x0"
    ]
    ring = buffers._rings["recvbuf"].memory
    ring[2, GUARD - 1] = 0
    assert before.ctypes.data == ring[2, GUARD:].ctypes.data
    (found,) = buffers.check(0)
    assert (found.row, found.text) == (2, "guard before recvbuf: byte -1 from its start: expected 0xa5, got 0x0")


def test_a_sendbuf_that_was_written_to_is_found():
    buffers = filled()
    buffers.send[2][4] += 1
    (found,) = buffers.check(0)
    assert found.text.startswith("sendbuf was written to: index 4: it held ")


def test_what_is_shifted_is_wrong():
    pattern = pattern_of(np.dtype("int8"), None, 2, np.asarray)
    case = Case("sendrecv", np.dtype("int8"), None, None, 0, 2, 3 * PERIOD)
    array = np.empty(3 * PERIOD, "int8")
    write(array, case.wanted(pattern), pattern.tiles, 0)
    assert mistakes(array, case.wanted(pattern), pattern.tiles, 0) == (0, None)
    for shift in (1, 64, 4096, 8192):
        assert mistakes(np.roll(array, shift), case.wanted(pattern), pattern.tiles, 0)[0] > PERIOD


def test_small_calls_come_in_a_ring_that_fits_a_cache():
    assert [rows_for(nbytes) for nbytes in (0, 8, 32 << 10, 256 << 10, 1 << 20)] == [16, 16, 16, 2, 1]


def test_memory_needed_is_that_of_the_buffers():
    for name, times in {"allreduce": 2, "broadcast": 1, "alltoall": 2, "allgather": 1.25}.items():
        case = Case(name, np.dtype("uint8"), None, 0, 0, 4, 1 << 30)
        assert needed(case, False) == pytest.approx(times * (1 << 30), rel=1e-6)
    assert needed(Case("allreduce", np.dtype("uint8"), "sum", None, 0, 4, 1 << 33), True) == pytest.approx(1 << 33)


def test_memory_needed_is_that_of_the_scratch_memory_too():
    comm = SimpleNamespace(nodes=(0, 0, 1, 1), explain=lambda collective, nbytes: SimpleNamespace(algorithm="tree"))
    case = Case("allreduce", np.dtype("uint8"), "sum", None, 0, 4, 1 << 30)
    for name, times in {"exchange": 3, "ring": 0.375, "hierarchical": 1.5, None: 2}.items():
        scratch = Ours(comm, "blocking", name).scratch(case)
        assert scratch == pytest.approx(2 * times * (1 << 30), rel=1e-6)
    assert Ours(comm, "blocking").scratch(Case("sendrecv", case.dtype, None, None, 0, 4, 8)) == 0


# Overlap, table, picture, diff.


def test_overlap_by_two_definitions():
    assert overlap.osu(10, 10, 10) == overlap.imb(10, 10, 10) == 100
    assert overlap.osu(10, 10, 20) == overlap.imb(10, 10, 20) == 0
    assert overlap.osu(10, 10, 35) == overlap.imb(10, 10, 35) == 0
    assert overlap.osu(10, 40, 42) == 80
    assert overlap.imb(10, 40, 42) == 20  # of the longer of the two


def record(**changes):
    made = {
        "event": "row", "schema": 1, "collective": "allreduce", "by": "mpicoll", "algorithm": "ring", "chosen": True,
        "form": "blocking", "in_place": False, "ranks": 2, "dtype": "float32", "type": "float", "op": "sum",
        "root": None, "device": "cpu", "nbytes": 1024, "count": 256, "time_us": 12.5, "algbw": 0.08192,
        "busbw": 0.08192, "wrong": 0, "predicted_us": 4.0, "ratio": {"mpi": {"median": 0.5, "q1": 0.4, "q3": 0.6}},
        "latency_us": {"min": 11.0, "median": 12.0, "p99": 123456.7}, "environment": {"mpi": "an MPI"},
        "slowest_us": {"q1": 12.0, "median": 12.5, "q3": 13.0},
    }  # fmt: skip
    return {**made, **changes}


def test_the_first_thirteen_columns_are_nccl_tests():
    columns = (False, True), ["mpi", "limit"], True
    line = table.line({False: record(), True: record(in_place=True, wrong=3)}, *columns)
    fields = line.split()
    assert fields[:13] == [
        "1024",
        "256",
        "float",
        "sum",
        "-1",
        "12.50",
        "0.08",
        "0.08",
        "0",
        "12.50",
        "0.08",
        "0.08",
        "3",
    ]
    assert fields[13:21] == ["ring", "4.00", "11.00", "12.00", "123457", "0.50", "(0.40-0.60)", "-"]
    alone = table.line({False: record(wrong=None)}, *columns).split()
    assert alone[8:13] == ["N/A"] * 5
    for head in table.heading(*columns):
        assert head.startswith("#")
    names = table.heading(*columns)[2].split()
    place = ["time", "algbw", "busbw", "#wrong"]
    assert names[1:14] == ["size", "count", "type", "redop", "root", *place, *place]


def test_rows_stand_under_their_headings():
    columns = (False, True), ["mpi", "limit"], True
    found = record(overlap={"osu_percent": 100.0, "imb_percent": 97.4})
    found["ratio"]["limit"] = {"median": 1.0, "q1": 1.0, "q3": 1.25}
    line = table.line({False: found, True: found}, *columns)
    heads = table.heading(*columns)
    assert len(line) == len(heads[2]) == len(heads[3])
    assert "100% (80%-100%)" in line
    assert "100%, 97%" in line


@pytest.mark.parametrize(
    ("value", "shown"), [(0.004, "0.00"), (12.345, "12.35"), (99999.9, "99999.9"), (123456.7, "123457"), (1e8, "1e+08")]
)
def test_numbers_fit_their_column(value, shown):
    assert table.fit(value, 7).strip() == shown
    assert len(table.fit(value, 7)) == 7


def test_the_footer_counts_what_is_wrong_and_averages_ours():
    rows = [record(busbw=1.0), record(busbw=3.0, wrong=2), record(by="mpi", busbw=100.0)]
    assert table.footer(rows)[:2] == ["# Out of bounds values : 2 FAILED", "# Avg bus bandwidth    : 2"]
    assert "0 OK" in table.footer([record()])[0]
    assert "not checked" in table.footer([record(wrong=None)])[0]


@pytest.mark.parametrize("sizes", [(0,), (65536,), (3000, 12000)])
def test_a_picture_names_the_sizes_that_were_measured_in_plain_numbers(tmp_path, sizes):
    pytest.importorskip("matplotlib")
    picture.save([record(nbytes=nbytes, busbw=5.0 + nbytes / 1e5) for nbytes in sizes], str(tmp_path / "a.svg"))
    content = (tmp_path / "a.svg").read_text()
    for nbytes in sizes:
        assert content.count(f">{picture.in_binary(nbytes)}<") == 2  # in both panels
    assert "mathdefault" not in content  # no powers of ten
    assert len(re.findall(r">\d+(\.\d+)?<", content)) >= 4  # on the other axes


@pytest.mark.parametrize("name", ["a.svg", "a.png"])
def test_a_picture_has_everybody(tmp_path, name):
    pytest.importorskip("matplotlib")
    rows = [
        record(nbytes=nbytes, by=by, algorithm=by, chosen=by == "mpicoll", in_place=in_place)
        for nbytes, by, in_place in itertools.product((8, 1 << 20), ("mpicoll", "mpi", "gloo"), (False, True))
    ]
    picture.save(rows, str(tmp_path / name))
    content = (tmp_path / name).read_bytes()
    if name.endswith("svg"):
        for word in (b"mpicoll", b"mpi", b"gloo", b"in-place", b"out-of-place", b"GB/s"):
            assert word in content
    else:
        assert content.startswith(b"\x89PNG")


@pytest.fixture
def files(tmp_path):
    """files(rows of A, rows of B): the arguments of diff."""

    def write_both(*contents):
        paths = [str(tmp_path / f"{name}.jsonl") for name in "AB"]
        for path, rows in zip(paths, contents, strict=True):
            with open(path, "w") as file:
                file.writelines(json.dumps(row) + "\n" for row in rows)
        return bench.parse(["diff", *paths])

    return write_both


def slowest(q1, median, q3):
    return {"slowest_us": {"q1": q1, "median": median, "q3": q3}}


def test_diff_finds_what_has_become_slower(files, capsys):
    before = [record(nbytes=8), record(nbytes=64), record(nbytes=512), record(nbytes=4096)]
    after = [
        record(nbytes=8, **slowest(14, 15, 16)),
        record(nbytes=64, **slowest(12.9, 15, 16)),  # within the spread
        record(nbytes=512, **slowest(13.01, 13.02, 13.03)),  # less than the threshold
        record(nbytes=32768),
    ]
    assert diff.main(files(before, after)) == 1
    told = capsys.readouterr().out
    assert [line.split()[-1] for line in told.splitlines()[1:4]] == ["slower", "1.20", "1.04"]
    assert "3 rows in both: 1 slower, 0 faster" in told
    assert told.count("1 rows are only in") == 2
    assert diff.main(files(after, before)) == 0
    assert "0 slower, 1 faster" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "told"),
    [(["no json"], "line 1: no record"), ([{"event": "row"}], "line 1: no record"), ([], "have no row in common")],
)
def test_diff_says_what_is_wrong_with_a_file(tmp_path, capsys, content, told):
    for name in "AB":
        text = "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in content)
        (tmp_path / name).write_text(text)
    paths = SimpleNamespace(before=str(tmp_path / "A"), after=str(tmp_path / "B"), threshold=5)
    assert diff.main(paths) == 2
    assert told in capsys.readouterr().err
    paths.after = str(tmp_path / "C")
    paths.before = paths.after
    assert diff.main(paths) == 2
    assert "No such file" in capsys.readouterr().err
