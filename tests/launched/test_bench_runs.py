"""mpicoll.bench as users type it."""

import json

import pytest

BENCH = ("-m", "mpicoll.bench")
FEW = ("-b", "8", "-e", "8K", "-f", "1024", "-n", "2", "-w", "1")


def rows(done):
    return [line.split() for line in done.stdout.splitlines() if line and not line.startswith("#")]


def test_a_table_and_records_of_ours_and_the_mpi(mpirun, tmp_path):
    pytest.importorskip("matplotlib")
    file, picture = tmp_path / "rows.jsonl", tmp_path / "picture.svg"
    extra = ("--compare", "mpi", "--limit", "--json", str(file), "--plot", str(picture))
    done = mpirun(2, *BENCH, "allreduce", *FEW, *extra)
    assert done.returncode == 0, done.stderr
    shown = rows(done)
    assert [row[0] for row in shown] == ["8"] * 3 + ["8192"] * 3
    assert [row[1:5] for row in shown] == [["2", "float", "sum", "-1"]] * 3 + [["2048", "float", "sum", "-1"]] * 3
    assert {row[8] for row in shown} == {row[12] for row in shown} == {"0", "N/A"}  # the limit is not checked
    assert [row[13] for row in shown][1:3] == ["mpi", "limit"]
    assert "# Out of bounds values : 0 OK" in done.stdout
    records = [json.loads(line) for line in file.read_text().splitlines()]
    assert len(records) == 12
    for record in records:
        assert (record["event"], record["schema"], len(record["hosts"])) == ("row", 1, 2)
        assert record["environment"]["command"][0] == "allreduce"
        low, middle, high = (record["slowest_us"][name] for name in ("q1", "median", "q3"))
        assert 0 < low <= middle <= high
        assert set(record["ratio"]) == ({"mpi", "limit"} if record["by"] == "mpicoll" else set())
    assert b"<svg" in picture.read_bytes()
    again = mpirun(1, *BENCH, "diff", str(file), str(file))
    assert again.returncode == 0, again.stderr
    assert "12 rows in both: 0 slower, 0 faster" in again.stdout


@pytest.mark.parametrize("form", ["--persistent", "--nonblocking"])
def test_the_other_forms(mpirun, form):
    done = mpirun(2, *BENCH, "allgather", *FEW, form, "--algorithm", "ring,bruck", "--compare", "mpi")
    assert done.returncode == 0, done.stderr
    assert [row[13] for row in rows(done)] == ["ring", "bruck", "mpi"] * 2
    assert ("(OSU, IMB)" in done.stdout) == (form == "--nonblocking")


def test_gloo_is_compared_where_torch_is_installed(mpirun):
    pytest.importorskip("torch")
    for collective in ("allreduce", "reduce_scatter"):
        done = mpirun(2, *BENCH, collective, *FEW, "--compare", "gloo,mpi")
        assert done.returncode == 0, done.stdout + done.stderr
        assert [row[13] for row in rows(done)][1::3] == ["gloo"] * 2


def test_collectives_without_a_place_or_a_number(mpirun):
    done = mpirun(2, *BENCH, "alltoall", *FEW)
    assert [row[9:13] for row in rows(done)] == [["N/A"] * 4] * 2
    done = mpirun(2, *BENCH, "broadcast", *FEW, "-r", "1")
    assert [row[4:9] for row in rows(done)] == [["1", "N/A", "N/A", "N/A", "N/A"]] * 2
    done = mpirun(2, *BENCH, "barrier", "-n", "2", "-w", "1")
    assert [row[:3] for row in rows(done)] == [["0", "0", "uint8"]]
    assert "not checked" in done.stdout


def test_all_types_and_operations(mpirun):
    small = ("-b", "64", "-e", "64", "-n", "1", "-w", "0", "-d", "all", "-o", "all")
    done = mpirun(2, *BENCH, "allreduce", *small, "--compare", "mpi")
    assert done.returncode == 0, done.stdout + done.stderr
    kinds = {(row[2], row[3]) for row in rows(done)}
    assert {("int8", "sum"), ("f8e4m3", "avg"), ("bool", "max"), ("complex64", "prod"), ("bfloat16", "min")} <= kinds
    assert ("complex64", "max") not in kinds
    assert "# mpi is not compared in-place: MPI has no datatype for float16" in done.stdout
    assert "# Out of bounds values : 0 OK" in done.stdout


WRONG = """
import sys
from mpicoll import bench
from mpicoll.collectives import Collectives

honest = Collectives.allreduce

def allreduce(self, sendbuf, recvbuf, *rest, **options):
    honest(self, sendbuf, recvbuf, *rest, **options)
    recvbuf[1] += self.rank

Collectives.allreduce = allreduce
raise SystemExit(bench.main(["allreduce", "-b", "8", "-e", "8", "-n", "1", "-w", "0"]))
"""


def test_a_wrong_result_ends_with_status_1_and_says_where(mpirun):
    done = mpirun(2, WRONG)
    assert done.returncode == 1, done.stderr
    assert done.stdout.count("in-place: rank 1, call 0: index 1: expected ") == 1, done.stdout
    assert "FAILED" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("allreduce", "--compare", "nccl"), "--compare nccl: it knows only GPU memory; add --device gpu"),
        (("allreduce", "--device", "gpu"), "--device gpu: there is no GPU"),
        (("allreduce", "-e", "64T"), "ranks of node 0 need up to"),
        (("broadcast", "-r", "2"), "-r 2: ranks go from 0 to 1"),
        (("allreduce", "-b", "2"), "-b 2 is less than one float32, which has 4 bytes"),
        (("allreduce", "-o", "avg", "-d", "int8"), "the average is no integer in general"),
        (("allreduce", "--algorithm", "rign"), "algorithm is 'rign'; there are"),
        (("allreduce", "--json", "nowhere/a.jsonl"), "--json nowhere/a.jsonl: No such file or directory"),
        (("allreduce", "--plot", "nowhere/a.svg"), "--plot nowhere/a.svg: there is no folder nowhere"),
        (("allreduce", "-g", "2"), "start mpirun -np 2 python -m mpicoll.bench allreduce"),
    ],
)
def test_what_cannot_be_measured_is_said_once(mpirun, arguments, told):
    if "--plot" in arguments:
        pytest.importorskip("matplotlib")
    done = mpirun(2, *BENCH, *arguments, CUDA_VISIBLE_DEVICES="")
    assert done.returncode != 0
    assert done.stderr.count("mpicoll.bench: error: ") == 1, done.stderr
    assert told in done.stderr
    assert "Traceback" not in done.stderr


def test_a_peer_that_is_not_installed_is_named_with_the_way_out(mpirun, tmp_path):
    (tmp_path / "torch.py").write_text("raise ImportError('not installed')")
    done = mpirun(2, *BENCH, "allreduce", "--compare", "gloo", PYTHONPATH=str(tmp_path))
    assert done.returncode != 0
    assert done.stderr.count("--compare gloo needs torch on every rank: pip install 'mpicoll[bench]' brings it") == 1


def test_one_rank_measures_nothing_and_says_so(mpirun):
    done = mpirun(1, *BENCH, "allreduce")
    assert done.returncode == 2
    assert "nothing was measured; start mpirun -np 2 python -m mpicoll.bench allreduce" in done.stderr
