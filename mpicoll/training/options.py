"""What the trainer is told: its arguments, with the values of a recipe where nothing is said. Nothing is loaded yet."""

import argparse
import math

from ..command import Parser
from . import precision, recipes, reproducible, sync

CHECK_EVERY = 10  # steps between two comparisons of replicas, with MPICOLL_DEBUG=1


def at_least(least, kind=int):
    """The type of an argument that is a finite number, not below `least`."""

    def number(text):
        value = kind(text)
        if not least <= value < math.inf:
            raise argparse.ArgumentTypeError(f"{text} is not a number from {least} up")
        return value

    number.__name__ = kind.__name__  # what argparse calls it in "invalid int value"
    return number


def fraction(text):
    """The type of an argument from 0 to 1."""
    value = float(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text} is not a number from 0 to 1")
    return value


def parse(argv, description):
    """The arguments; help and errors are printed by rank 0 only, and before MPI starts.

    With --resume they are not complete: see `resume.merge`. `known` are the names of all, `given` of those given.
    """
    parser = Parser(prog="mpicoll.train", description=description)
    for about, add_arguments in GROUPS.items():
        add_arguments(parser.add_argument_group(about))
    unsaid = vars(parser.parse_args([]))
    nothing = object()
    said = vars(parser.parse_args(argv, argparse.Namespace(**dict.fromkeys(unsaid, nothing))))
    given = {name: value for name, value in said.items() if value is not nothing}
    args = argparse.Namespace(**{**unsaid, **given}, known=frozenset(unsaid), given=frozenset(given))
    try:
        if not args.resume:
            complete(args)
    except ValueError as error:
        parser.error(str(error))
    return args


def complete(args):
    """What was not given is as in the recipe, and what was given fits together.

    Raises:
        ValueError: it does not.
    """
    recipes.complete(args)
    sync.check(args)
    precision.check(args)
    reproducible.complete(args)
    if args.stop_at and not args.checkpoint:
        raise ValueError(f"--stop-at {args.stop_at} ends with a checkpoint: add --checkpoint DIR")
    if args.elastic:
        kept = {
            "--sync parameter-server": (args.sync == "parameter-server", "which has state on one rank alone"),
            f"--wire-dtype {args.wire_dtype}": (args.wire_dtype, "which keeps what was rounded off on each rank"),
            "--reproducible": (args.reproducible, "which is for powers of two as numbers of ranks"),
            "--timeline": (args.timeline, "which collects the steps of all ranks"),
        }
        if wrong := next((f"{flag}, {why}" for flag, (is_on, why) in kept.items() if is_on), None):
            raise ValueError(f"--elastic goes on without the ranks that die: it does not go with {wrong}")
    if args.wire_dtype and args.checkpoint:
        raise ValueError(
            f"--wire-dtype {args.wire_dtype} keeps what it rounded off on each rank, which a checkpoint does not hold; "
            f"leave it or --checkpoint out"
        )


def model_and_data(group):
    add = group.add_argument
    add("--model", choices=("gpt", "mlp"), default="gpt", help="gpt predicts at every position, mlp after the last one")
    add("--preset", choices=recipes.GPTS, help="the GPT's sizes, batch, steps and rate; None: tiny")
    add("--data", metavar="FILE", help="UTF-8 text, read by rank 0, or digits; None: the documentation of CPython")
    add("--context", type=at_least(1), help=f"characters from which the next one is predicted; None: {told('context')}")
    add("--layers", type=at_least(0), help=f"blocks of a GPT, hidden layers of an MLP; None: {told('layers')}")
    add("--width", type=at_least(1), help=f"of a GPT; None: {told('width')}")
    add("--heads", type=at_least(1), help=f"of a GPT's attention; None: {told('heads')}")
    add("--hidden", type=at_least(1), help=f"width of an MLP's hidden layer; None: {told('hidden')}")
    add("--embedding", type=at_least(1), help=f"width of a character in an MLP; None: {told('embedding')}")
    add("--precision", choices=tuple(precision.TYPES), default="float32", help=precision.HELP)
    add("--seed", type=at_least(0), default=0, help="of the initial weights and of the order of the samples")
    add("--device", choices=("auto", "cpu", "gpu"), default="auto", help="auto: GPUs if every rank has one")


def steps_and_rate(group):
    length = group.add_mutually_exclusive_group()
    length.add_argument("--steps", type=at_least(1), help=f"steps in all, also after --resume; None: {told('steps')}")
    length.add_argument("--epochs", type=at_least(0.001, float), help="instead: times that the data are learnt")
    add = group.add_argument
    add("--global-batch", type=at_least(1), help=f"samples per step over all ranks; None: {told('global_batch')}")
    add("--micro-batch", type=at_least(1), help="samples a rank computes at a time; None: its whole share")
    add("--optimizer", choices=("adamw", "sgd"), default="adamw", help="SGD has a momentum of 0.9")
    rates = told("lr", lambda lr: f"{lr['adamw']:g} or {lr['sgd']:g}")
    add("--lr", type=at_least(0, float), help=f"peak learning rate, for AdamW or SGD; None: {rates}")
    rule = "what the rate is multiplied by for another batch than the default: 1, their ratio's root, or their ratio"
    add("--lr-rule", choices=tuple(recipes.LR_RULES), default="none", help=rule)
    add("--warmup", type=fraction, default=0.05, help="part of the steps in which the rate rises, before its cosine")
    add("--clip", type=at_least(0, float), help=f"largest norm of the gradients, 0: any; None: {told('clip')}")
    add("--check-finite", action="store_true", help="end with parameter and rank if a gradient is not finite")


def synchronisation(group):
    add = group.add_argument
    modes = sync.MODES | sync.NONE
    add("--sync", choices=tuple(modes), default="allreduce", help="; ".join(map(": ".join, modes.items())))
    add("--dedicated-server", action="store_true", help="with --sync parameter-server: rank 0 computes no gradients")
    add("--algorithm", help="of the all-reduce, by name; None: chosen by size")
    cap = "MiB per gradient bucket (the first: 1 at most); None: 25, across nodes a 20th of the gradients from 0.25 up"
    add("--bucket-cap-mb", type=at_least(0, float), help=cap)
    measured = "after the first step, make the buckets again by the order in which rank 0's gradients became ready"
    add("--rebuild-buckets", action="store_true", help=measured)
    add("--wire-dtype", choices=sync.WIRES, help="gradients travel so, with error feedback; None: as they are")
    add("--no-overlap", action="store_true", help="communicate only when backward has ended, whatever --sync")
    by_thread = "a thread drives communication beside the computation; None: across nodes, unless they compute on GPUs"
    add("--progress-thread", action=argparse.BooleanOptionalAction, help=by_thread)
    add("--reproducible", action="store_true", help=reproducible.HELP)
    shards = f"with --reproducible: shards of a global batch, a power of two; None: {reproducible.VIRTUAL_RANKS}"
    add("--virtual-ranks", type=at_least(1), help=shards)
    add("--layer-drop", type=fraction, default=0, help="probability that a rank leaves out a half block of a GPT")
    add("--find-unused-parameters", action="store_true", help="layers may be left out; needed by --layer-drop")


def results(group):
    goes_on = "with --resume the file goes on, without what it had of later steps"
    group.add_argument("--metrics", metavar="FILE", help=f"JSON lines: one per step, then a summary; {goes_on}")
    shown = "the last 5 steps of all ranks, for ui.perfetto.dev; FILE.svg or .png: the last of rank 0 as a picture"
    group.add_argument("--timeline", metavar="FILE", help=shown)


def checkpoints(group):
    add = group.add_argument
    add("--checkpoint", metavar="DIR", help="save the run there, also if SIGUSR1 or SIGTERM ends it; None: as --resume")
    add("--checkpoint-every", metavar="STEPS", type=at_least(1), default=100, help="and at the end; the last two stay")
    goes_on = "go on from the last checkpoint in a folder, or from this one; arguments that are not given are its own"
    add("--resume", metavar="DIR_OR_FILE", help=goes_on)
    add("--stop-at", metavar="STEP", type=at_least(1), help="end there as if time were over; --steps remains the total")


def trouble(group):
    goes_on = "go on without ranks that die; with Open MPI, mpirun --with-ft ulfm ..."
    group.add_argument("--elastic", action="store_true", help=goes_on)
    often = "compare all parameters so often, and end with the first that differs; 0: at the end alone; None: 0, "
    often += f"{CHECK_EVERY} with MPICOLL_DEBUG=1"
    group.add_argument("--check-replicas", metavar="STEPS", type=at_least(0), help=often)


GROUPS = {
    "model and data": model_and_data,
    "steps and learning rate": steps_and_rate,
    "synchronisation": synchronisation,
    "checkpoints": checkpoints,
    "trouble": trouble,
    "results": results,
}


def told(name, words="{:g}".format):
    """The values of the recipes that have this argument, for --help."""
    found = {recipe: words(values[name]) for recipe, values in recipes.RECIPES.items() if name in values}
    return ", ".join(f"{value} ({recipe})" for recipe, value in found.items())
