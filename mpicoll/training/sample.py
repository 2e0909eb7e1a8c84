"""Writes text, as a model of a checkpoint goes on with it: python -m mpicoll.train sample --checkpoint DIR

Needs no launcher. The text is a function of checkpoint, prompt, length, temperature and seed.
"""

import argparse
import sys
from types import SimpleNamespace

from .. import command, runtime
from . import options

NAME = "mpicoll.train sample"


def parse(argv):
    parser = command.Parser(prog=NAME, description=__doc__)
    add = parser.add_argument
    add("--checkpoint", metavar="DIR_OR_FILE", required=True, help="the last one in a folder, or this one")
    add("--prompt", default="", help="the text begins so; its characters are those of the training text")
    add("--length", metavar="N", type=options.at_least(0), default=500, help="characters to write after the prompt")
    about = "0: always the likeliest character; 1: as likely as the model says; above: more varied"
    add("--temperature", metavar="T", type=options.at_least(0, float), default=0.8, help=about)
    add("--seed", type=options.at_least(0), default=0, help="another seed writes another text")
    return parser.parse_args(argv)


def main(argv):
    """The exit status; on rank 0 the text has been written to the standard output."""
    args = parse(argv)
    if command.rank():
        return 0
    runtime.limit_threads()
    from . import checkpoint

    try:
        model, vocabulary, length = read(checkpoint.find(args.checkpoint))
        prompt = tokens(args.prompt, vocabulary)
    except ValueError as error:
        return command.fail(NAME, 2, error)
    start = max(0, vocabulary.find("\n"))  # before the text, as far as the model must see something
    sys.stdout.write(args.prompt)
    for token in generate(model, prompt, args.length, start, length, args.temperature, args.seed):
        sys.stdout.write(vocabulary[token])
        sys.stdout.flush()
    sys.stdout.write("\n")
    return 0


def read(path):
    """(model, vocabulary, (fewest, most) characters that it takes) of a checkpoint.

    Raises:
        ValueError: it cannot be used, or its model does not read text.
    """
    from . import checkpoint, recipes, resume

    arrays, about = checkpoint.load(path)
    vocabulary, args = about["vocabulary"], argparse.Namespace(**about["arguments"])
    if vocabulary is None:
        raise ValueError(f"checkpoint {path} is of a model that sorts images, and writes no text")
    recipes.complete(args)
    model = recipes.build(args, SimpleNamespace(classes=len(vocabulary)))
    own = {resume.PARAMETERS + p.name: p.data for p in model.parameters}
    resume.check_arrays(path, {name: x for name, x in arrays.items() if name.startswith(resume.PARAMETERS)}, own)
    for name, array in own.items():
        array[...] = arrays[name]
    return model, vocabulary, (1 if args.recipe in recipes.GPTS else args.context, args.context)


def tokens(text, vocabulary):
    """The numbers of the characters.

    Raises:
        ValueError: the vocabulary lacks one.
    """
    for place, character in enumerate(text):
        if character not in vocabulary:
            raise ValueError(
                f"--prompt: character {place} is {character!r}, which was not in the training text; "
                f"there are {vocabulary!r}"
            )
    return [vocabulary.index(character) for character in text]


def generate(model, prompt, count, start, lengths, temperature=1.0, seed=0):
    """Yields `count` tokens after the prompt, each drawn from what the model says of those before it.

    Args:
        prompt: list of tokens, preceded by `start` where the model needs more.
        lengths: the fewest and the most tokens that the model takes.
        temperature: logits are divided by it; 0 takes the largest.
    """
    import numpy as np

    rng, (least, most) = np.random.default_rng(seed), lengths
    text = [start] * (least - len(prompt)) + prompt
    for _ in range(count):
        text = text[-most:]
        logits = model.forward(np.array([text]))
        logits = logits.reshape(-1, logits.shape[-1])[-1].astype(np.float64)
        if temperature:
            weights = np.exp((logits - logits.max()) / temperature).cumsum()
            token = int(np.searchsorted(weights, rng.random() * weights[-1], side="right"))
        else:
            token = int(logits.argmax())
        text.append(token)
        yield token
