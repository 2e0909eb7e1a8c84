"""What the trainer takes where nothing is said, and what it says of arguments that do not fit."""

import contextlib
import io

import numpy as np
import pytest

from mpicoll.training import options, recipes
from mpicoll.training.data import Text

TEXT = "the quick brown fox jumps over the lazy dog; " * 40


@pytest.mark.parametrize("recipe", ["tiny", "mlp", "digits"])
def test_a_recipe_builds_a_model_for_its_data(recipe):
    words = {"tiny": [], "mlp": ["--model", "mlp"], "digits": ["--model", "mlp", "--data", "digits"]}[recipe]
    args = options.parse(words, "")
    assert args.recipe == recipe
    content = np.zeros((30, 65), np.uint8).tobytes() if recipe == "digits" else TEXT.encode()
    data = recipes.load(args, content)
    logits = recipes.build(args, data).forward(data.train[:3, :-1])
    positions = (args.context,) if recipe == "tiny" else ()
    assert logits.shape == (3, *positions, data.classes)
    assert data.predicted == (positions or (1,))[0]
    for ranks in (1, 2, 3, 4, 6, 8):
        assert args.global_batch % ranks == 0


def test_what_is_said_comes_before_the_recipe():
    args = options.parse(
        ["--preset", "small", "--context", "16", "--layers", "0", "--clip", "0", "--optimizer", "sgd"], ""
    )
    assert (args.layers, args.clip, args.width) == (0, 0, recipes.RECIPES["small"]["width"])
    assert args.lr == recipes.RECIPES["small"]["lr"]["sgd"]
    assert recipes.build(args, Text(TEXT.encode(), args.context, predicted=args.context)).parameters


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--hidden 8", "--model gpt has no --hidden; it has --context, --width, --heads, --layers"),
        ("--model mlp --heads 2", "--model mlp has no --heads; it has --context, --layers, --embedding, --hidden"),
        ("--model mlp --data digits --context 8", "--model mlp on digits has no --context; it has --layers, --hidden"),
        ("--model mlp --preset gpt2", "--preset gpt2 is a GPT's; --model is mlp"),
        ("--data digits", "--data digits are images, and --model gpt reads text; --model mlp takes both"),
        ("--epochs 0", "0 is not a number from 0.001 up"),
        ("--warmup nan", "nan is not a number from 0 to 1"),
    ],
)
def test_what_does_not_fit_is_named(words, message):
    with contextlib.redirect_stderr(io.StringIO()) as said, pytest.raises(SystemExit) as ending:
        options.parse(words.split(), "")
    assert ending.value.code == 2
    assert message in said.getvalue()


@pytest.mark.parametrize(("rule", "factor"), [("none", 1), ("sqrt", 2), ("linear", 4)])
def test_the_rate_follows_the_batch_by_the_rule_that_is_printed(rule, factor):
    args = options.parse(["--lr", "0.25", "--global-batch", str(4 * recipes.RECIPES["tiny"]["global_batch"])], "")
    args.lr_rule = rule
    rate, words = recipes.peak_rate(args)
    assert rate == 0.25 * factor
    assert (
        words
        == {
            "none": "0.25",
            "sqrt": f"0.25 x sqrt({args.global_batch} / {args.base_batch}) = 0.5",
            "linear": f"0.25 x ({args.global_batch} / {args.base_batch}) = 1",
        }[rule]
    )
