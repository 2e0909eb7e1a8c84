"""What the trainer trains, by name: sizes, and the batch, steps and rate that go with them. Nothing is loaded to parse.

A recipe says what holds where the arguments say nothing; an argument that a recipe does not have is an error.
"""

from . import precision

RECIPES = {
    # About a minute on 8 ranks of a laptop.
    "tiny": {
        "context": 64, "width": 96, "layers": 2, "heads": 4,
        "global_batch": 48, "steps": 900, "lr": {"adamw": 8e-3, "sgd": 0.5}, "clip": 1.0,
    },
    # For a GPU or a cluster: nanoGPT's for characters, and GPT-2, 124 million parameters with its 50,257 tokens.
    "small": {
        "context": 256, "width": 384, "layers": 6, "heads": 6,
        "global_batch": 64, "steps": 5000, "lr": {"adamw": 1e-3, "sgd": 0.1}, "clip": 1.0,
    },
    "gpt2": {
        "context": 1024, "width": 768, "layers": 12, "heads": 12,
        "global_batch": 480, "steps": 600_000, "lr": {"adamw": 6e-4, "sgd": 0.1}, "clip": 1.0,
    },
    "mlp": {
        "context": 16, "embedding": 24, "hidden": 512, "layers": 2,
        "global_batch": 1680, "steps": 800, "lr": {"adamw": 2e-3, "sgd": 0.1}, "clip": 0.0,
    },
    "digits": {
        "hidden": 128, "layers": 2,
        "global_batch": 168, "steps": 400, "lr": {"adamw": 2e-3, "sgd": 0.1}, "clip": 0.0,
    },
}  # fmt: skip
GPTS = ("tiny", "small", "gpt2")
SIZES = ("context", "width", "heads", "layers", "embedding", "hidden")


def complete(args):
    """Every argument that was not given is the recipe's; `args.recipe` is its name, `args.base_batch` its batch.

    Raises:
        ValueError: an argument was given that this model does not have.
    """
    digits = args.data == "digits"
    if digits and args.model == "gpt":
        raise ValueError("--data digits are images, and --model gpt reads text; --model mlp takes both")
    if args.preset and args.model != "gpt":
        raise ValueError(f"--preset {args.preset} is a GPT's; --model is {args.model}")
    args.recipe = (args.preset or "tiny") if args.model == "gpt" else "digits" if digits else args.model
    recipe = RECIPES[args.recipe]
    if other := [name for name in SIZES if getattr(args, name) is not None and name not in recipe]:
        sizes = ", ".join(f"--{name}" for name in SIZES if name in recipe)
        raise ValueError(f"--model {args.model}{' on digits' * digits} has no --{other[0]}; it has {sizes}")
    args.base_batch = recipe["global_batch"]
    for name, value in recipe.items():
        if getattr(args, name) is None:
            setattr(args, name, value[args.optimizer] if name == "lr" else value)


def words(args):
    """A completed recipe's name and sizes, for people."""
    return f"{args.recipe}: " + ", ".join(
        f"{name} {getattr(args, name)}" for name in SIZES if name in RECIPES[args.recipe]
    )


def load(args, content):
    """The data that a completed recipe is for: `data.Text` or `data.Digits`, of these bytes.

    Raises:
        ValueError: the content cannot be used.
    """
    from . import data

    if args.recipe == data.DIGITS:
        return data.Digits(content)
    name = f"data file {args.data}" if args.data else "the text"
    return data.Text(content, args.context, name, args.context if args.recipe in GPTS else 1)


def build(args, data):
    """The model of a completed recipe for this data, on the host, with its initial weights.

    Raises:
        ValueError: the sizes do not fit together.
    """
    from .gpt import GPT
    from .models import CharMLP, ImageMLP

    if args.recipe in GPTS:
        model = GPT(data.classes, args.context, args.width, args.layers, args.heads, args.seed)
    elif args.recipe == "digits":
        model = ImageMLP(data.pixels, data.white, data.classes, args.hidden, args.layers, args.seed)
    else:
        model = CharMLP(data.classes, args.context, args.embedding, args.hidden, args.layers, args.seed)
    return precision.rounded(model, args.precision)


LR_RULES = {"none": 0.0, "sqrt": 0.5, "linear": 1.0}


def peak_rate(args):
    """(rate, words): --lr is for the recipe's own batch; for another, the rule multiplies it by a power of their ratio.

    "linear" is Goyal et al. 2017's, "sqrt" Krizhevsky 2014's (and the one for Adam: Malladi et al. 2022).
    """
    ratio = args.global_batch / args.base_batch
    rate = args.lr * ratio ** LR_RULES[args.lr_rule]
    if args.lr_rule == "none":
        return rate, f"{rate:g}"
    power = {"sqrt": "sqrt", "linear": ""}[args.lr_rule]
    return rate, f"{args.lr:g} x {power}({args.global_batch} / {args.base_batch}) = {rate:.3g}"
