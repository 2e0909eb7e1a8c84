"""Text becomes samples; the sampler gives every sample to exactly one rank."""

import hashlib
import sys

import numpy as np
import pytest

from mpicoll.training.data import Digits, Text, read
from mpicoll.training.parameter_server import WorkersSampler
from mpicoll.training.sampler import Sampler


def decode(text, tokens):
    return "".join(text.vocabulary[t] for t in tokens)


def test_a_sample_is_a_context_and_the_next_character():
    content = "añb∞c" * 20
    text = Text(content.encode(), context=4)
    assert (text.characters, text.vocabulary) == (100, "".join(sorted("añb∞c")))
    assert text.sha256 == hashlib.sha256(content.encode()).hexdigest()
    assert len(text.train) == 90 - 4
    for i, row in enumerate(text.train):
        assert decode(text, row) == content[i : i + 5]


def test_every_held_out_character_is_predicted_once_and_never_trained_on():
    content = "".join(chr(i) for i in range(300, 400))
    text = Text(content.encode(), context=4)
    assert decode(text, text.held_out[:, -1]) == content[90:]
    assert decode(text, np.unique(text.train)) == content[:90]


@pytest.mark.parametrize("predicted", [1, 3, 5])
def test_every_held_out_character_is_predicted_once_whatever_a_row_predicts(predicted):
    content = "".join(chr(i) for i in range(300, 430))
    text = Text(content.encode(), context=5, predicted=predicted)
    targets = decode(text, text.held_out[:, -predicted:].reshape(-1))
    assert content.endswith(targets)
    assert len(targets) == 13 // predicted * predicted
    assert decode(text, np.unique(text.train)) == content[: -len(targets)]
    assert text.to(np.asarray).held_out.shape == (13 // predicted, 6)
    assert str(text) == f"130 characters, 130 different ones; {len(targets)} held out"


def test_digits_are_pixels_and_the_digit():
    rows = np.arange(20 * 65, dtype=np.uint8).reshape(20, 65)
    digits = Digits(rows.tobytes())
    assert (digits.train == rows[:18]).all()
    assert (digits.held_out == rows[18:]).all()
    assert str(digits) == "20 images, 10 digits; 2 held out"
    assert (digits.to(lambda x: x + 1).held_out == rows[18:] + 1).all()


def test_the_digits_of_scikit_learn():
    pytest.importorskip("sklearn")
    digits = Digits(read("digits"))
    assert digits.train.shape[0] + digits.held_out.shape[0] == 1797
    assert digits.train[:, :-1].max() == digits.white
    assert (np.unique(digits.train[:, -1]) == np.arange(digits.classes)).all()


def test_digits_without_scikit_learn_say_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(ValueError, match=r"pip install 'mpicoll\[digits\]'"):
        read("digits")


def test_large_vocabularies_have_wider_tokens():
    text = Text("".join(chr(i) for i in range(300, 700)).encode(), context=4)
    assert text.train.dtype == np.uint16
    assert len(text.vocabulary) == 400


def test_the_default_text_is_there():
    text = Text(read(), context=16)
    assert text.characters > 100_000
    assert 60 < len(text.vocabulary) < 256


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"essay\.txt is empty"),
        (b"ab\xff", r"essay\.txt is not UTF-8: byte 0xff at offset 2"),
        (b"short", r"essay\.txt has 5 characters, too few for a context of 8"),
        (b"x" * 9, "has 9 characters, too few"),
    ],
)
def test_unusable_content_is_named(content, message):
    with pytest.raises(ValueError, match=message):
        Text(content, 8, name="essay.txt")


def test_unreadable_files_are_named(tmp_path):
    with pytest.raises(ValueError, match=r"missing\.txt: No such file"):
        read(tmp_path / "missing.txt")
    with pytest.raises(ValueError, match="Is a directory"):
        read(tmp_path)


def stream(count, batch, size, seed, steps):
    """The samples of all ranks, step by step, in rank order."""
    samplers = [Sampler(count, batch, rank, size, seed) for rank in range(size)]
    return np.concatenate([s.batch(step) for step in range(steps) for s in samplers])


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 12])
@pytest.mark.parametrize("count", [12, 17, 24, 100])
def test_every_epoch_has_every_sample_once_and_is_the_same_for_every_number_of_ranks(size, count):
    samples = stream(count, 12, size, seed=3, steps=30)
    assert (samples == stream(count, 12, 1, seed=3, steps=30)).all()
    for epoch in range(len(samples) // count):
        assert (np.sort(samples[epoch * count : (epoch + 1) * count]) == np.arange(count)).all()


@pytest.mark.parametrize("stride", [2, 5, 16])
def test_an_epoch_of_overlapping_samples_covers_everything_but_the_ends_once(stride):
    sampler, starts = Sampler(100, 4, seed=1, stride=stride), set()
    assert sampler.count == 100 // stride
    for epoch in range(20):
        covered = (np.sort(sampler.permutation(epoch))[:, None] + np.arange(stride)).reshape(-1)
        assert (covered == np.arange(covered[0], covered[0] + len(covered))).all()
        assert covered[0] < stride
        assert covered[-1] < 100 + stride - 1
        assert sampler.permutation(epoch).max() < 100
        starts.add(int(covered[0]))
    assert len(starts) > 1


def test_the_permutation_is_a_function_of_seed_and_epoch():
    one, two = Sampler(1000, 10, seed=1), Sampler(1000, 10, seed=1)
    late = two.permutation(5).copy()
    assert (one.permutation(0) != one.permutation(1)).any()
    assert (one.permutation(5) == late).all()
    assert (Sampler(1000, 10, seed=2).permutation(5) != late).any()


def test_any_step_can_be_asked_for_at_any_time():
    ordered, jumping = Sampler(17, 4, seed=1), Sampler(17, 4, seed=1)
    batches = [ordered.batch(step) for step in range(20)]
    for step in (13, 2, 19, 4, 0):
        assert (jumping.batch(step) == batches[step]).all()


@pytest.mark.parametrize(("batch", "size", "shares"), [(50, 8, [7] * 2 + [6] * 6), (7, 3, [3, 2, 2]), (3, 3, [1] * 3)])
def test_shares_differ_by_one_sample_at_most_and_their_divisor_makes_the_average_a_mean(batch, size, shares):
    samplers = [Sampler(100, batch, rank, size) for rank in range(size)]
    assert [len(s.batch(1)) for s in samplers] == [s.share for s in samplers] == shares
    assert all(s.shares == shares for s in samplers)
    sums = [s.batch(1).sum() / s.divisor for s in samplers]
    assert np.mean(sums) == pytest.approx(Sampler(100, batch).batch(1).mean(), rel=1e-15)


@pytest.mark.parametrize(
    ("micro_batch", "sizes"),
    [(None, [[7], [6]]), (9, [[7], [6]]), (6, [[4, 3], [6]]), (4, [[4, 3], [3, 3]]), (1, [[1] * 7, [1] * 6])],
)
def test_micro_batches_are_as_large_as_said_at_most_and_never_empty(micro_batch, sizes):
    for rank, expected in zip((0, 7), sizes, strict=True):
        sampler = Sampler(100, 50, rank, 8, micro_batch=micro_batch)
        parts = np.array_split(sampler.batch(0), sampler.accumulation)
        assert [len(part) for part in parts] == expected
        assert sampler.micro_batch == min(micro_batch or 7, 7)  # on all ranks: an evaluation is cut by it


@pytest.mark.parametrize("size", [2, 4])
def test_a_dedicated_server_has_no_samples_and_the_workers_have_all(size):
    samplers = [WorkersSampler(100, 50, rank, size, seed=3) for rank in range(size)]
    assert [s.share for s in samplers] == [0, *samplers[0].shares]
    assert (np.concatenate([s.batch(4) for s in samplers]) == Sampler(100, 50, seed=3).batch(4)).all()
    assert samplers[0].batch(4).dtype.kind == "i"
    assert {(s.divisor, s.micro_batch) for s in samplers} == {(50 / size, samplers[1].micro_batch)}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"global_batch": 101}, "global batch is 101, the data has 100 training samples"),
        ({"global_batch": 0}, "choose a batch from 1 to 100"),
        ({"global_batch": 3, "size": 4}, "3 is smaller than the 4 ranks that share it: choose a batch from 4 up"),
        ({"global_batch": 24, "micro_batch": 0}, "micro-batch is 0"),
    ],
)
def test_impossible_batches_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        Sampler(100, **arguments)


def test_the_epoch_check_finds_a_sampler_that_repeats_its_permutation():
    class Forgetful(Sampler):
        def permutation(self, epoch):
            return super().permutation(0)

    assert (Forgetful(100, 10).batch(0) == Forgetful(100, 10).batch(10)).all()
    assert (Sampler(100, 10).batch(0) != Sampler(100, 10).batch(10)).any()
