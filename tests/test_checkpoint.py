"""A checkpoint is whole or not there, gives back what was saved, and says what is wrong with it."""

import json
import os
import resource
from types import SimpleNamespace

import numpy as np
import pytest
from ml_dtypes import bfloat16
from safetensors.numpy import load_file, save_file

from mpicoll.training import checkpoint, optimizers, options, recipes, resume, sample
from mpicoll.training.data import Text
from mpicoll.training.layers import Parameter

ABOUT = {"arguments": {"lr": 0.1}, "vocabulary": "abc\u20ac"}


def arrays(step=0):
    rng = np.random.default_rng(step)
    return {
        "single": rng.standard_normal((2, 3)).astype(np.float32),
        "double": rng.standard_normal(5),
        "brain": rng.standard_normal(7).astype(bfloat16),
        "half": np.array([np.inf, -0.0, np.nan], np.float16),
        "none": np.empty((0, 3), np.float32),
        "count": np.array(step),
    }


def same(got, expected):
    assert got.keys() == expected.keys()
    for name, x in expected.items():
        assert (got[name].dtype, got[name].shape, got[name].tobytes()) == (x.dtype, x.shape, x.tobytes()), name


def test_what_was_saved_comes_back_and_anyone_can_read_it(tmp_path):
    checkpoint.save(tmp_path, 12, arrays(), ABOUT)
    got, about = checkpoint.load(checkpoint.find(tmp_path))
    same(got, arrays())
    assert about == {**ABOUT, "step": 12}
    path = tmp_path / "step-00000012.safetensors"
    same(load_file(path), arrays())
    (tmp_path / "other").touch()
    assert path.stat().st_mode == (tmp_path / "other").stat().st_mode


def test_the_last_two_stay_and_what_a_kill_has_left_goes(tmp_path):
    left = tmp_path / checkpoint.UNFINISHED
    for step in (100, 200, 300):
        left.mkdir()
        (left / "half.safetensors").write_bytes(b"half")
        checkpoint.save(tmp_path, step, arrays(step), ABOUT)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "step-00000200.safetensors",
        "step-00000300.safetensors",
    ]
    checkpoint.save(tmp_path, 250, arrays(), ABOUT)  # of a run that went on from 200
    assert list(checkpoint.found(tmp_path)) == [200, 250]


def fails(*arguments, **options):
    raise OSError(28, "No space left on device")


def too_large(arrays, path, metadata):
    path.write_bytes(b"the beginning")
    fails()


@pytest.mark.parametrize(
    ("where", "name", "broken"),
    [(checkpoint, "save_file", too_large), (os, "fsync", fails), (os, "replace", fails)],
    ids=["write", "fsync", "rename"],
)
def test_a_failure_at_any_moment_leaves_the_one_before(tmp_path, monkeypatch, where, name, broken):
    checkpoint.save(tmp_path, 1, arrays(1), ABOUT)
    with monkeypatch.context() as patch:
        patch.setattr(where, name, broken)
        with pytest.raises(OSError, match="No space left"):
            checkpoint.save(tmp_path, 2, arrays(2), ABOUT)
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000001.safetensors"]
    same(checkpoint.load(checkpoint.find(tmp_path))[0], arrays(1))


def test_a_file_that_the_system_does_not_let_grow_is_an_os_error(tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, hard))
        with pytest.raises(OSError, match="File too large"):
            checkpoint.save(tmp_path, 1, {"large": np.ones(100_000)}, ABOUT)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not list(tmp_path.iterdir())


def test_it_has_its_name_only_when_it_is_on_the_disk(tmp_path, monkeypatch):
    events, fsync, replace = [], os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda fd: (events.append(os.readlink(f"/proc/self/fd/{fd}")), fsync(fd)))
    monkeypatch.setattr(os, "replace", lambda *names: (events.append("rename"), replace(*names)))
    checkpoint.save(tmp_path, 3, arrays(), ABOUT)
    assert events == [str(checkpoint.path_of(tmp_path / checkpoint.UNFINISHED, 3)), "rename", str(tmp_path)]


def rewritten(path, change):
    """The checkpoint with another description, and a sha256 that fits it."""
    values, about = checkpoint.load(path)
    about["schema"] = checkpoint.SCHEMA
    change(values, about)
    about["sha256"] = checkpoint.checksum(values, about)
    save_file(values, path, metadata={"mpicoll": json.dumps(about)})


def flip(path, place):
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


CUT = "is truncated, damaged or no checkpoint"
DAMAGES = {
    "truncated": (lambda path: os.truncate(path, path.stat().st_size - 1), CUT),
    "empty": (lambda path: os.truncate(path, 0), CUT),
    "no safetensors": (
        lambda path: path.write_bytes(b"something else entirely"),
        CUT,
    ),
    "a bit of the arrays": (lambda path: flip(path, -1), "is damaged: its sha256 is "),
    "a digit of the step": (
        lambda path: path.write_bytes(path.read_bytes().replace(rb"\"step\": 2", rb"\"step\": 3")),
        "is damaged: its sha256 is ",
    ),
    "another program's": (lambda path: save_file(arrays(), path), "none that mpicoll.train has written"),
    "another schema": (
        lambda path: rewritten(path, lambda _, about: about.update(schema=99)),
        "has the schema 99; this version of mpicoll reads 1",
    ),
    "no description": (
        lambda path: save_file(arrays(), path, metadata={"mpicoll": "{"}),
        "is damaged: its description",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_every_damage_is_told_with_the_file_and_the_one_before(tmp_path, damage):
    for step in (1, 2):
        checkpoint.save(tmp_path, step, arrays(step), ABOUT)
    newest = checkpoint.find(tmp_path)
    change, told = DAMAGES[damage]
    change(newest)
    with pytest.raises(ValueError) as error:  # noqa: PT011 the text is looked at
        checkpoint.load(newest)
    assert str(error.value).startswith(f"checkpoint {newest} ")
    assert told in str(error.value)
    one_before = tmp_path / "step-00000001.safetensors"
    assert str(error.value).endswith(f"; the one before it: --resume {one_before}")
    same(checkpoint.load(one_before)[0], arrays(1))


def test_the_tests_find_a_checksum_that_is_not_compared(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "checksum", lambda arrays, about: "planted")
    with pytest.raises(pytest.fail.Exception):
        test_every_damage_is_told_with_the_file_and_the_one_before(tmp_path, "a bit of the arrays")


def test_a_missing_checkpoint_or_a_folder_of_another_run_is_told(tmp_path):
    with pytest.raises(ValueError, match="there is no such file or folder"):
        checkpoint.find(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="has no step-"):
        checkpoint.find(tmp_path)
    checkpoint.prepare(tmp_path / "new" / "folder")
    assert not list((tmp_path / "new" / "folder").iterdir())
    checkpoint.save(tmp_path, 5, arrays(), ABOUT)
    with pytest.raises(ValueError, match=f"has a run's checkpoint of step 5: --resume {tmp_path} goes on"):
        checkpoint.prepare(tmp_path)
    checkpoint.prepare(tmp_path, resumed=checkpoint.find(tmp_path))
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="Not a directory"):
        checkpoint.prepare(tmp_path / "file")


@pytest.mark.parametrize("make", [optimizers.SGD, optimizers.AdamW])
def test_an_optimizer_goes_on_from_its_state_as_if_nothing_had_happened(make):
    def parameters():
        rng = np.random.default_rng(1)
        return [Parameter("w", rng.standard_normal((3, 4))), Parameter("b", rng.standard_normal(4).astype(bfloat16))]

    def train(optimizer, steps):
        for step in steps:
            for p in optimizer.parameters:
                p.grad[...] = np.sin(np.arange(p.data.size) * (step + 1)).reshape(p.data.shape)
            optimizer.step()
        return [p.data.copy() for p in optimizer.parameters]

    whole = train(make(parameters(), lr=0.1), range(6))
    first, second = make(parameters(), lr=0.1), make(parameters(), lr=0.1)
    train(first, range(3))
    for p, q in zip(second.parameters, first.parameters, strict=True):
        p.data[...] = q.data
    second.restore({name: array.copy() for name, array in first.state().items()})
    for x, y in zip(train(second, range(3, 6)), whole, strict=True):
        assert x.tobytes() == y.tobytes()


def parsed(words):
    return options.parse(words.split(), "")


def saved(words):
    """The arguments in a checkpoint of a run with these."""
    args = parsed(words)
    data, model = SimpleNamespace(sha256="", vocabulary=""), SimpleNamespace(parameters=[])
    return resume.about(args, SimpleNamespace(data=data, model=model, steps=args.steps))["arguments"]


def test_arguments_that_were_not_given_are_the_checkpoints():
    args = parsed("--resume DIR --steps 70 --algorithm ring --micro-batch 3")
    resume.merge(args, saved("--preset small --lr 0.1 --steps 50 --seed 5 --bucket-cap-mb 3"), "DIR/step-1")
    assert (args.recipe, args.lr, args.seed, args.bucket_cap_mb, args.width) == ("small", 0.1, 5, 3, 384)
    assert (args.steps, args.algorithm, args.micro_batch, args.checkpoint) == (70, "ring", 3, "DIR")


def test_what_is_free_may_change_and_what_is_the_same_may_be_said_again():
    before = saved("--sync parameter-server --dedicated-server --preset tiny --epochs 2")
    args = parsed("--resume DIR --sync allreduce --preset tiny --epochs 4 --lr 0.008")
    resume.merge(args, before, "DIR/step-1")
    assert (args.sync, args.dedicated_server, args.epochs) == ("allreduce", False, 4)
    args = parsed("--resume DIR --sync per-parameter")
    resume.merge(args, saved("--bucket-cap-mb 5"), "DIR/step-1")
    assert (args.sync, args.bucket_cap_mb) == ("per-parameter", None)


@pytest.mark.parametrize(
    ("words", "before", "message"),
    [
        ("--lr 0.5", "", "--lr is 0.5, in checkpoint DIR/s it is 0.008; leave --lr out, or train anew elsewhere"),
        ("--seed 1", "--seed 2", "--seed is 1, in checkpoint DIR/s it is 2"),
        ("--optimizer sgd", "", "--optimizer is sgd, in checkpoint DIR/s it is adamw"),
        ("--preset small", "", "--preset is small, in checkpoint DIR/s it is tiny"),
        ("--width 8", "", "--width is 8, in checkpoint DIR/s it is 96"),
        ("--global-batch 8", "", "--global-batch is 8, in checkpoint DIR/s it is 48"),
        ("", "--reproducible", "--reproducible is False, in checkpoint DIR/s it is True; give --reproducible, or"),
        ("--reproducible", "", "--reproducible is True, in checkpoint DIR/s it is False; leave --reproducible out"),
        ("--wire-dtype float16", "", "--wire-dtype is float16, in checkpoint DIR/s it is None"),
    ],
)
def test_a_contradiction_names_both_values(words, before, message):
    with pytest.raises(ValueError) as error:  # noqa: PT011 the text is looked at
        resume.merge(parsed(f"--resume DIR {words}"), saved(before), "DIR/s")
    assert message in str(error.value)


def test_an_argument_of_another_version_is_told():
    with pytest.raises(ValueError, match="has an argument 'magic', which this version"):
        resume.merge(parsed("--resume DIR"), {**saved(""), "magic": 1}, "DIR/s")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--stop-at 3", "--stop-at 3 ends with a checkpoint: add --checkpoint DIR"),
        ("--wire-dtype float16 --checkpoint DIR", "--wire-dtype float16 keeps what it rounded off on each rank"),
        ("--checkpoint-every 0", "0 is not a number from 1 up"),
        ("--sync per-parameter --bucket-cap-mb 5", "--bucket-cap-mb 5 is for buckets of several parameters; --sync"),
        ("--model mlp --layer-drop 0.5", "--layer-drop 0.5 leaves out half blocks of a GPT; --model is mlp"),
    ],
)
def test_options_that_do_not_fit_are_told(words, message, capsys):
    with pytest.raises(SystemExit) as ending:
        parsed(words)
    assert ending.value.code == 2
    assert message in capsys.readouterr().err


def test_other_data_and_another_vocabulary_are_told():
    then = Text(b"the quick brown fox " * 9, context=3)
    found = resume.Resumed("DIR/s", {}, {"vocabulary": then.vocabulary, "data_sha256": then.sha256})
    resume.check_data(found, Text(b"the quick brown fox " * 9, context=3))
    with pytest.raises(ValueError, match=r"the data have the sha256 \w{12}, those of checkpoint DIR/s had \w{12}"):
        resume.check_data(found, Text(b"the quick brown fox " * 10, context=3))
    with pytest.raises(ValueError, match=r"another vocabulary than checkpoint DIR/s: 1 .* \['q'\], and 1 .* \['Q'\]"):
        resume.check_data(found, Text(b"the Quick brown fox " * 9, context=3))


def test_arrays_of_another_model_are_named():
    there, here = {"a": np.zeros(3), "b": np.zeros(2)}, {"a": np.zeros(3), "b": np.zeros((2, 1)), "c": np.zeros(1)}
    with pytest.raises(ValueError, match=r"DIR/s is of another model: there b is float64\[2\], here float64\[2, 1\]"):
        resume.check_arrays("DIR/s", there, here)
    with pytest.raises(ValueError, match=r"there c is missing, here float64\[1\]"):
        resume.check_arrays("DIR/s", {**there, "b": here["b"]}, here)
    resume.check_arrays("DIR/s", here, here)


def test_a_metrics_file_goes_on_after_the_step_of_the_checkpoint(tmp_path):
    path = tmp_path / "metrics.jsonl"
    steps = [json.dumps({"event": "step", "step": step}) + "\n" for step in range(1, 6)]
    for more in ("", json.dumps({"event": "summary"}) + "\n", '{"event": "st'):
        path.write_text("".join(steps) + more)
        for last in (5, 3, 0):
            with open(path, "a+", encoding="utf-8", buffering=1) as file:
                resume.cut(file, last)
                file.write("new\n")
            assert path.read_text() == "".join(steps[:last]) + "new\n"
            path.write_text(path.read_text().removesuffix("new\n"))


SIZES = {"gpt": "--context 6 --width 8 --heads 2 --layers 1", "mlp": "--model mlp --context 6 --hidden 8 --layers 1"}
TEXT = Text(b"the quick brown fox jumps over the lazy dog\n" * 9, context=6)


@pytest.fixture(params=SIZES)
def trained(request, tmp_path):
    """The folder of a checkpoint of a small model with its initial weights."""
    args = parsed(SIZES[request.param])
    model = recipes.build(args, TEXT)
    parts = SimpleNamespace(data=TEXT, model=model, steps=1)
    values = resume.arrays(model, optimizers.SGD(model.parameters, 1))
    checkpoint.save(tmp_path, 1, values, resume.about(args, parts))
    return tmp_path


def written(capsys, *words):
    assert sample.main([*map(str, words)]) == 0
    return capsys.readouterr().out


def test_sample_writes_what_the_model_says_next(trained, capsys):
    words = "--checkpoint", trained, "--length", 30, "--prompt"
    text = written(capsys, *words, "the quick brown")
    assert text.startswith("the quick brown")
    assert len(text) == 15 + 30 + 1
    assert set(text) <= set(TEXT.vocabulary)
    assert text == written(capsys, *words, "the quick brown", "--seed", 0)
    assert text != written(capsys, *words, "the quick brown", "--seed", 1)
    assert len(written(capsys, *words, "")) == 31
    likeliest = written(capsys, *words, "dog", "--temperature", 0)
    assert likeliest == written(capsys, *words, "dog", "--temperature", 0, "--seed", 1)
    model, vocabulary, (least, most) = sample.read(checkpoint.find(trained))
    context = likeliest[:30][-most:]
    logits = model.forward(np.array([[vocabulary.index(character) for character in context]]))
    assert likeliest[30] == vocabulary[logits.reshape(-1, len(vocabulary))[-1].argmax()]
    assert least in (1, 6)


def test_tokens_are_drawn_as_often_as_the_model_says():
    model = SimpleNamespace(forward=lambda x: np.log(np.array([[0.5, 0.0625, 0.4375]], np.float32)))
    for temperature, power in ((1.0, 1), (0.5, 2)):
        drawn = np.bincount(list(sample.generate(model, [0], 4000, 0, (1, 1), temperature)), minlength=3) / 4000
        expected = np.array([0.5, 0.0625, 0.4375]) ** power
        np.testing.assert_allclose(drawn, expected / expected.sum(), atol=0.03)


def test_sample_says_what_it_cannot_do(trained, capsys):
    assert sample.main(["--checkpoint", str(trained), "--prompt", "the Fox"]) == 2
    assert (
        "--prompt: character 4 is 'F', which was not in the training text; there are '\\n abc"
        in capsys.readouterr().err
    )
    assert sample.main(["--checkpoint", str(trained / "none")]) == 2
    assert "there is no such file or folder" in capsys.readouterr().err
    rewritten(checkpoint.find(trained), lambda values, about: about.update(vocabulary=None))
    assert sample.main(["--checkpoint", str(trained)]) == 2
    assert "is of a model that sorts images, and writes no text" in capsys.readouterr().err


def test_ranks_other_than_0_write_nothing(trained, capsys, monkeypatch):
    monkeypatch.setenv("PMI_RANK", "1")
    assert written(capsys, "--checkpoint", trained) == ""
