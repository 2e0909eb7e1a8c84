"""The experiments: what is estimated, in what order variants train, tables and pictures, and what is told of errors."""

import contextlib
import importlib
import itertools
import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from mpicoll import experiments
from mpicoll.command import open_results
from mpicoll.experimenting import EXPERIMENTS, noise, outcome, runs, scaling
from mpicoll.experimenting.outcome import Outcome


def test_the_noise_scale_is_the_noise_over_the_gradient():
    gradient, covariance = 2.0, 48.0
    local, averaged = gradient + covariance / 4, gradient + covariance / 8
    assert noise.scale([local], [averaged], 4, 8) == covariance / gradient
    # steps are averaged before they are divided
    assert noise.scale([local - 5, local + 5], [averaged + 3, averaged - 3], 4, 8) == covariance / gradient


def test_the_noise_scale_of_all_batches_is_exact():
    samples = np.array([[3.0, 1.0], [1.0, 1.0], [3.0, 5.0], [1.0, 5.0]])  # gradients; their mean is (2, 3)
    covariance = ((samples - samples.mean(axis=0)) ** 2).sum(axis=1).mean()
    pairs = [np.mean(pair, axis=0) for pair in itertools.product(samples, repeat=2)]
    local, averaged = ([(g**2).sum() for g in those] for those in (samples, pairs))
    assert noise.scale(local, averaged, 1, 2) == covariance / 13
    assert noise.scale(local, averaged, 2, 4) != covariance / 13  # with wrong batch sizes it would be seen


def test_the_noise_scale_of_nothing_but_noise_is_infinite_and_without_noise_0():
    assert noise.scale([8.0], [4.0], 1, 2) == float("inf")
    assert noise.scale([4.0], [4.0], 1, 2) == 0
    assert noise.scale([3.0], [4.0], 1, 2) == 0


def test_the_noise_scale_needs_two_batch_sizes():
    with pytest.raises(ValueError, match="8 has to be above 8"):
        noise.scale([1.0], [1.0], 8, 8)


def test_norms_are_taken_before_and_after_the_all_reduce():
    def halve(send, recv, **_):
        recv *= 0.5

    comm = SimpleNamespace(iallreduce=halve, allreduce=lambda x, op: x)
    norms = noise.Norms()
    for values in ([2.0, 2.0], [4.0], [6.0, 2.0], [2.0]):  # two steps of two buckets
        list(norms(comm, SimpleNamespace(flat=np.array(values))))
    local, averaged = norms.steps(comm, 2)
    assert local.tolist() == [8 + 16, 40 + 4]
    assert averaged.tolist() == [2 + 4, 10 + 1]


class Learner:
    """A variant that writes down when it trains."""

    def __init__(self, name, diary):
        self.comm, self.turns, self.name, self.diary = True, [], name, diary

    def train(self, steps):
        self.diary.append(self.name)
        return [{"step": step} for step in range(steps)]


def test_variants_take_turns_in_an_order_that_rotates(monkeypatch):
    monkeypatch.setattr(runs, "together", lambda world: None)
    setting = runs.Setting(SimpleNamespace(rank=1), None, None, "CPU", None, quick=False)
    diary = []
    those = [Learner(name, diary) for name in "abc"]
    those[1].comm = None  # this rank has no part in it
    runs.measure(setting, those, repetitions=3, steps=2)
    assert "".join(diary) == "caaccaca"
    assert (
        those[0].turns == [[{"step": 1}, {"step": 2}]] * 3
    )  # the first step of a turn and the first turn are left out
    assert those[1].turns == []


def test_what_is_saved_is_compared_within_a_repetition():
    base = np.array([[10.0, 10.0, 90.0], [20.0, 20.0, 20.0], [40.0, 40.0, 40.0]])
    assert runs.ratio(base / 2, base) == {"median": 0.5, "q1": 0.5, "q3": 0.5}
    assert runs.saved(base * [[0.25], [0.5], [0.75]], base) == {"median": 0.5, "q1": 0.375, "q3": 0.625}


def test_an_infinite_number_spoils_no_median_and_is_null_in_json():
    inf = float("inf")
    assert runs.spread([inf, 5.0, 7.0]) == {"median": 7.0, "q1": 5.0, "q3": inf}
    assert runs.spread([inf, inf, inf]) == {"median": inf, "q1": inf, "q3": inf}
    row = {"noise_scale": runs.spread([inf] * 3), "steps": 2, "ratio": float("nan"), "none": None}
    nulls = {"median": None, "q1": None, "q3": None}
    assert outcome.for_json(row) == {"noise_scale": nulls, "steps": 2, "ratio": None, "none": None}


def test_a_variant_is_driven_as_the_trainer_would(monkeypatch):
    entered = []
    monkeypatch.setattr(runs.progress, "thread", lambda: contextlib.nullcontext(entered.append(True)))
    monkeypatch.setattr(runs, "_train", lambda *arguments: [])
    data, args = SimpleNamespace(train=None), SimpleNamespace(clip=0, progress_thread=None)
    for thread in True, False:
        variant = runs.Variant(None, "", [], None)
        variant.args = args
        variant.parts = SimpleNamespace(model=None, optimizer=None, data=data, sampler=None, thread=thread)
        assert variant.train(1) == []
    assert entered == [True]


@pytest.mark.parametrize(
    ("size", "ranks"), [(1, [1]), (2, [1, 2]), (3, [1, 2, 3]), (8, [1, 2, 4, 8]), (9, [1, 2, 4, 8, 9])]
)
def test_scaling_takes_powers_of_two_and_all(size, ranks):
    assert scaling.counts(size) == ranks


SPREAD = {"median": 2.0, "q1": 1.0, "q3": 3.5}
ROWS = [
    {"way": "one", "n": 1, "step_ms": SPREAD, "exposed_comm_ms": SPREAD, "saved": None},
    {"way": "another", "n": 2, "step_ms": SPREAD, "exposed_comm_ms": SPREAD, "saved": 0.25},
]


def made(draw):
    columns = {"way": ("way", ""), "n": ("n", "d"), "step_ms": ("step (ms)", ".1f"), "saved": ("saved", ".0%")}
    return Outcome("overlap", "a model", "--width 1", columns, ROWS, ["Found here."], "The paper: more.", draw)


def test_the_table_has_medians_with_quartiles_and_says_what_was_found():
    assert outcome.table(made(None)).splitlines() == [
        "way       n          step (ms)   saved",
        "one       1   2.0 (1.0 to 3.5)       -",
        "another   2   2.0 (1.0 to 3.5)     25%",
        "",
        "Found here.",
        "The paper: more.",
    ]


def test_the_picture_has_a_panel_for_each_experiment_with_the_source_in_words(tmp_path):
    pytest.importorskip("matplotlib")
    path = tmp_path / "picture.svg"

    def lines(panel):
        outcome.lines(panel, [1, 2], {"measured": [SPREAD, None], "ideal": [1.0, 2.0]}, "ranks", "samples")

    outcome.save([made(lambda panel: outcome.bars(panel, ROWS, "way", "ways")), made(lines)], "2 ranks", str(path))
    text = path.read_text()
    assert text.count(">The paper: more.<") == text.count(">Found here.<") == 2
    for words in ("2 ranks", "another", "ways", "exposed communication", "ms per step", "measured", "ideal", "ranks"):
        assert f">{words}<" in text, words


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_is_there_and_names_its_source(name):
    module = importlib.import_module(f"mpicoll.experimenting.{name.replace('-', '_')}")
    assert callable(module.run)
    assert "The lecture" in module.SOURCE or "Li et al. 2020" in module.SOURCE


def test_help_lists_them_with_a_line_each(capsys):
    with pytest.raises(SystemExit) as end:
        experiments.main(["--help"])
    assert end.value.code == 0
    said = capsys.readouterr().out
    for name, about in EXPERIMENTS.items():
        assert f"    {name:<14}{about}\n" in said


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["overlpa"], "argument NAME: invalid choice: 'overlpa' (choose from "),
        ([], "the following arguments are required: NAME"),
        (["overlap", "--svg", "picture.jpg"], "--svg picture.jpg: the name ends in .svg or .png"),
    ],
)
def test_wrong_arguments_are_told_in_one_line(capsys, arguments, told):
    with pytest.raises(SystemExit) as end:
        experiments.main(arguments)
    assert end.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith(f"mpicoll.experiments: error: {told}")
    assert said.count("\n") == 1


def test_one_rank_is_too_few(capsys):
    assert experiments.main(["overlap", "--device", "cpu"]) == 2
    assert capsys.readouterr().err == (
        "mpicoll.experiments: error: one rank has nobody to talk to: nothing was measured; "
        "start mpirun -np 2 python -m mpicoll.experiments overlap\n"
    )


@pytest.mark.parametrize(
    ("option", "path", "told"),
    [
        ("svg", "picture.svg", "a picture needs matplotlib, of the extra plot: pip install"),
        ("json", "nowhere/rows.jsonl", "--json nowhere/rows.jsonl: No such file or directory"),
    ],
)
def test_what_cannot_be_written_is_told_before_anything_is_measured(monkeypatch, option, path, told):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    names = {"svg": None, "json": None, option: path}
    world = SimpleNamespace(rank=0, bcast=lambda problem: problem)
    with pytest.raises(ValueError, match=told):
        open_results(world, contextlib.ExitStack(), names["json"], "--svg", names["svg"])


def test_spreads_are_numbers_that_json_takes():
    assert json.loads(json.dumps(runs.spread(np.arange(5)))) == {"median": 2.0, "q1": 1.0, "q3": 3.0}
