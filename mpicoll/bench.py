"""Measures a collective, and checks every call of it: mpirun -np 2 python -m mpicoll.bench allreduce -b 8 -e 64M -f 8

Flags and the first thirteen columns are nccl-tests'. Sizes are binary: 64K is 65,536 bytes; they are those of the whole
buffer, all ranks' parts together where it is cut. `time` is that of calls back to back, the median over repetitions,
and bandwidths follow from it; min, median and p99 are those of single calls, a barrier before each, of the slowest
rank. Ratios are our time over the other's in the same repetition: the median and, in brackets, the quartiles; below 1
we are faster.

    mpicoll.bench allreduce --compare mpi,gloo      beside the MPI's own and torch's, call by call in turn
    mpicoll.bench allreduce --algorithm all -b 64K -e 64K --plot picture.svg
    mpicoll.bench diff before.jsonl after.jsonl     what has become slower (no mpirun)

Exit status: 0 if all is right; 1 if a result is wrong (of diff: if something is slower); 2 if an argument is wrong.
"""

import argparse
import contextlib
import sys

from . import launch, plot, runtime
from .benching import diff, options
from .command import Parser, fail, of

PROGRAM = "mpicoll.bench"
SIZES = {"minbytes": "-b", "maxbytes": "-e", "stepfactor": "-f", "stepbytes": "-i", "datatype": "-d"}
UNUSED = (  # what it is, the flags that say it, the collectives that have it
    ("root", {"root": "-r"}, options.ROOTED),
    ("reduction", {"op": "-o"}, options.REDUCING),
    ("bytes", SIZES, [name for name in options.MEASURED if name != "barrier"]),
)
FORMS = {
    "persistent": "plans, made once and started again and again",
    "nonblocking": "handles; and how much of a call hides behind computation",
}


def main(argv=None):
    """The exit status; failure is rank 0's to report, the others' status is 0 (see command.py)."""
    args = parse(sys.argv[1:] if argv is None else argv)
    if args.collective == "diff":
        return diff.main(args)
    runtime.limit_threads()
    from .training import devices

    found = devices.find(args.device)
    try:
        world = launch.start(PROGRAM, found.where)
    except ValueError as error:
        return fail(PROGRAM, 2, error)
    from .benching import run

    if world.size == 1:
        return fail(PROGRAM, 2, f"one rank has nobody to talk to: nothing was measured; start {line(args, 2)}")
    with contextlib.ExitStack() as stack:
        try:
            setting = run.prepare(world, args, stack, *devices.agree(world, args.device, found))
        except ValueError as error:
            return fail(PROGRAM, 2, error)
        return run.run(setting)


def line(args, ranks):
    return f"mpirun -np {ranks} python -m mpicoll.bench {args.collective}"


def at_least(least):
    def number(text):
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"{text} is not a number from {least} up")
        return value

    number.__name__ = "int"  # what argparse calls it in "invalid int value"
    return number


def parse(argv):
    """The arguments; help and errors are printed by rank 0 only, and before MPI starts."""
    if argv and argv[0] == "diff":
        return diff.parser().parse_args(argv)
    parser = measuring()
    args = parser.parse_args(argv)
    try:
        check(args, parser.parse_args([args.collective]))
    except ValueError as error:
        parser.error(str(error))
    return args


def measuring():
    """The parser of everything but diff."""
    parser = Parser(prog=PROGRAM, description=__doc__)
    parser.add_argument("collective", choices=(*options.MEASURED, "diff"), help="what to measure; diff: see above")
    add = parser.add_argument_group("as in nccl-tests").add_argument
    size = of(options.parse_size)
    add("-b", "--minbytes", metavar="SIZE", type=size, default="8", help="smallest size")
    add("-e", "--maxbytes", metavar="SIZE", type=size, default="64M", help="largest size")
    add("-f", "--stepfactor", metavar="N", type=at_least(1), help="each size is so many times the last; None: 2")
    add("-i", "--stepbytes", metavar="SIZE", type=size, help="each size is so much more than the last")
    add("-n", "--iters", metavar="N", type=at_least(1), default=20, help="repetitions; each of many calls if short")
    add("-w", "--warmup_iters", metavar="N", type=at_least(0), default=5, help="repetitions before the clock counts")
    add("-c", "--check", metavar="0|1", type=int, choices=(0, 1), default=1, help="whether every call is checked")
    whose = "time is rank 0's, the mean, the least or the longest of all ranks'"
    add("-a", "--average", metavar="0..3", type=int, choices=range(4), default=1, help=whose)
    add("-o", "--op", default="sum", choices=(*options.OPS, "all"), help="reduction")
    add("-d", "--datatype", metavar="TYPE", default="float", help=f"one of {', '.join(options.TYPES)}, or all")
    add("-r", "--root", metavar="RANK", type=at_least(0), default=0, help="of collectives that have one")
    add("-g", "--ngpus", metavar="N", type=int, default=1, help="only 1: a rank drives one device")
    add("-t", "--nthreads", metavar="N", type=int, default=1, help="only 1: a rank is a process")
    add = parser.add_argument_group("more").add_argument
    add(
        "--algorithm", metavar="A,B", help="these in turn, a row for each; all: every one; None: as the library chooses"
    )
    peers, who = (
        of(options.names, options.PEERS),
        "mpi: this MPI's own; gloo: torch.distributed's; nccl: by CuPy; blocking calls",
    )
    add("--compare", metavar="PEER,PEER", type=peers, default=[], help=who)
    add("--limit", action="store_true", help="beside what the same memory traffic costs as local copies and additions")
    form = parser.add_mutually_exclusive_group().add_argument
    for name, what in FORMS.items():
        form(f"--{name}", dest="form", action="store_const", const=name, default="blocking", help=what)
    add("--device", choices=("cpu", "gpu"), default="cpu", help="where the buffers are")
    add("--json", metavar="FILE", help="a record for each size, contender and place, as a line")
    add("--plot", metavar="FILE", help="bandwidth and latency over size as .svg or .png")
    return parser


def check(args, usual):
    """args.sizes are the sizes in bytes; everything that can be told before MPI starts is as it should be.

    Args:
        usual: the arguments if only the collective is given.

    Raises:
        ValueError: it is not.
    """
    if args.collective == "diff":
        raise ValueError("diff comes first and compares two files: mpicoll.bench diff A.jsonl B.jsonl")
    for what, meant, has in UNUSED:
        for name, flag in meant.items():
            if args.collective not in has and getattr(args, name) != getattr(usual, name):
                raise ValueError(f"{args.collective} has no {what}: leave out {flag} {getattr(args, name)}")
    each = args.ngpus * args.nthreads
    if args.ngpus != 1 or args.nthreads != 1:
        raise ValueError(
            f"-g {args.ngpus} -t {args.nthreads}: a rank is one process that drives one device; instead of one with "
            f"{each} start {line(args, max(each, 2))}"
        )
    if args.stepfactor is not None and args.stepbytes is not None:
        raise ValueError("-f and -i are two ways from one size to the next: give one of them")
    factor = args.stepfactor or 2
    args.sizes = options.sizes(args.minbytes, args.maxbytes, factor, args.stepbytes)
    args.types = list(options.TYPES.values()) if args.datatype == "all" else [options.type_name(args.datatype)]
    if args.collective == "sendrecv" and (args.algorithm or args.form == "persistent"):
        what = "no algorithms" if args.algorithm else "no persistent form"
        raise ValueError(f"sendrecv is a message each way: it has {what}")
    if args.plot:
        plot.check_name("--plot", args.plot)


if __name__ == "__main__":
    raise SystemExit(main())
