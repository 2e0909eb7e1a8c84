"""Reducers whose options differ between ranks; buckets that are made again; no exchange at all."""

import contextlib
import itertools
import json

import numpy as np
import pytest

from mpicoll import Reducer, train
from mpicoll.training import reducer
from mpicoll.training.buckets import MIB
from mpicoll.training.exchanges import AllReduce, Nothing
from mpicoll.training.layers import Parameter
from mpicoll.training.parameter_server import ParameterServer

pytestmark = [pytest.mark.mpi(min_size=2), pytest.mark.ranks(range(4))]


def parameters(lengths=(3, 1, 4)):
    return [Parameter(f"p{i}", np.zeros(length)) for i, length in enumerate(lengths)]


@pytest.mark.parametrize(
    ("ours", "theirs", "says"),
    [
        ({}, {"bucket_cap_mb": 7}, "bucket_cap_mb is 25.0 on rank 0 and 7.0 on rank {}"),
        ({}, {"bucket_cap_mb": -1}, "bucket_cap_mb is 25.0 on rank 0 and -1.0 on rank {}"),
        ({"first_bucket_mb": 0.5}, {}, "first_bucket_mb is 0.5 on rank 0 and 1.0 on rank {}"),
        ({}, {"last_bucket_mb": 2}, "last_bucket_mb is 1.0 on rank 0 and 2.0 on rank {}"),
        ({}, {"overlap": False}, "overlap is True on rank 0 and False on rank {}"),
        ({"find_unused_parameters": True}, {}, "find_unused_parameters is True on rank 0 and False on rank {}"),
        ({}, {"check_finite": True}, "check_finite is False on rank 0 and True on rank {}"),
        ({}, {"rebuild_buckets": True}, "rebuild_buckets is False on rank 0 and True on rank {}"),
        ({}, {"reproducible": True}, "reproducible is False on rank 0 and True on rank {}"),
        ({"algorithm": "ring"}, {}, "algorithm is 'ring' on rank 0 and None on rank {}"),
        ({"exchange": Nothing()}, {"exchange": ParameterServer()}, "is 'nothing' on rank 0 and 'push' on rank {}"),
    ],
)
def test_options_of_another_rank_are_an_error_on_all(comm, ours, theirs, says):
    odd = comm.size - 1
    with pytest.raises(ValueError, match=rf"rank\(s\) {odd} differ from rank 0; .*{says.format(odd)}"):
        Reducer(comm, parameters(), **(theirs if comm.rank == odd else ours))


def test_options_come_before_parameters_and_parameters_keep_their_numbers(comm):
    odd = comm.rank == comm.size - 1
    with pytest.raises(ValueError, match=r"reducers' options differ .* bucket_cap_mb is 25\.0 on rank 0 and 1\.0"):
        Reducer(comm, parameters((3, 2) if odd else (3, 1)), 1 if odd else 25)
    with pytest.raises(
        ValueError, match=r"models differ .* parameter 1 is p1 float64\[1\] on rank 0 and p1 float64\[2"
    ):
        Reducer(comm, parameters((3, 2) if odd else (3, 1)))


def test_the_same_size_as_integer_and_as_float_is_alike(comm):
    Reducer(comm, parameters(), bucket_cap_mb=1.0 if comm.rank else 1)


def test_rebuilt_buckets_follow_rank_0_whatever_the_others_do(comm):
    ps = parameters((1, 2, 3, 4))
    cap = 8 / MIB  # every parameter has a bucket
    model = Reducer(comm, ps, cap, cap, cap, rebuild_buckets=True)
    order = list(itertools.permutations(range(4)))[(5 * comm.rank + 8) % 24]
    for i in order:
        ps[i].grad += comm.rank + i
        model.mark_ready(ps[i])
    model.finish()
    mean = (comm.size - 1) / 2
    assert all((p.grad == mean + i).all() for i, p in enumerate(ps))
    of_rank_0 = list(itertools.permutations(range(4)))[8]
    assert [p.name for bucket in model.buckets for p, _ in bucket.views] == [f"p{i}" for i in of_rank_0]


def test_where_nothing_is_exchanged_every_rank_keeps_its_own(comm):
    ps = parameters()
    model = Reducer(comm, ps, exchange=Nothing())
    before = comm.bytes_sent
    for step in range(2):
        model.zero_grad()
        for p in reversed(ps):
            p.grad += 10 * comm.rank + step
            model.mark_ready(p)
        model.finish()
        assert all((p.grad == 10 * comm.rank + step).all() for p in ps)
    assert comm.bytes_sent == before
    assert model.bytes_sent == model.formula_bytes() == 0
    assert model.communication_s == 0


GPT = ["--steps", "4", "--global-batch", "12", "--context", "6", "--width", "8", "--heads", "2", "--layers", "1"]


def trained(comm, tmp_path, *arguments):
    """(exit status, the summary on rank 0) of a short run."""
    metrics = tmp_path / "metrics.jsonl"
    with contextlib.redirect_stdout(None):
        status = train.main([*GPT, *arguments, "--metrics", str(metrics)])
    return status, json.loads(metrics.read_text().splitlines()[-1]) if comm.rank == 0 else None


def test_sync_none_sends_nothing_and_replicas_may_differ(comm, tmp_path):
    timeline = str(tmp_path / "timeline.json")
    for more in ([], ["--timeline", timeline]):
        status, summary = trained(comm, tmp_path, "--sync", "none", *more)
        assert status == 0
        if summary:
            assert (summary["replicas_identical"], summary["replicas_synchronised"]) == (False, False)
            assert summary["bytes_sent_per_rank"] == summary["comm_ms"] == 0
            assert summary["verdict"] == "nothing is communicated: a step is computation"


def test_replicas_that_differ_under_any_other_sync_are_still_found(comm, tmp_path, monkeypatch):
    monkeypatch.setattr(AllReduce, "__call__", Nothing.__call__)
    monkeypatch.setattr(AllReduce, "bytes_sent", Nothing.bytes_sent)
    status, summary = trained(comm, tmp_path)
    assert status == (comm.rank == 0)
    assert not summary or (summary["replicas_identical"], summary["replicas_synchronised"]) == (False, True)


def test_the_trainer_makes_its_buckets_again_and_counts_the_bytes_of_both(comm, tmp_path, monkeypatch):
    # Each bucket is filled up to a multiple of the ranks then, and these have odd lengths.
    arguments = ["--bucket-cap-mb", str(60 / MIB), "--wire-dtype", "float16", "--width", "7", "--heads", "1"]
    _, plain = trained(comm, tmp_path, *arguments)
    monkeypatch.setattr(reducer, "of_rank_0", lambda comm, order, ps: sorted(ps, key=lambda p: p.data.size))
    status, rebuilt = trained(comm, tmp_path, *arguments, "--rebuild-buckets")
    assert status == 0
    if rebuilt:
        assert rebuilt["bucket_mib"] != plain["bucket_mib"]
        assert comm.size > 3 or rebuilt["bytes_sent_per_rank"] != plain["bytes_sent_per_rank"]
        assert rebuilt["final_loss"] == pytest.approx(plain["final_loss"], rel=1e-3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--sync", "none", "--wire-dtype", "float16"], "--sync none has none"),
        (["--sync", "none", "--algorithm", "ring"], "--algorithm ring is of the all-reduce"),
        (["--sync", "none", "--checkpoint", "never-made"], "--checkpoint takes one replica for all"),
        (["--sync", "none", "--reproducible", "--global-batch", "16"], "--reproducible excludes --sync none"),
        (["--rebuild-buckets", "--find-unused-parameters"], "with --find-unused-parameters steps differ"),
    ],
)
def test_options_that_exclude_each_other_are_named(comm, capsys, arguments, message):
    with pytest.raises(SystemExit) as ended:
        train.main([*GPT, *arguments])
    assert ended.value.status == 2 or comm.rank
    assert (message in capsys.readouterr().err) == (comm.rank == 0)
