"""--reproducible: what is fixed so that a run has the same bits on every number of ranks that divides its shards.

The gradients' sums are `fixed_order`'s; NumPy's matrix products have one thread and shapes that do not depend on the
number of ranks. Nothing is loaded here.
"""

import os
import sys

VIRTUAL_RANKS = 8
THREADS = "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"
HELP = "the same bits on all numbers of ranks that divide --virtual-ranks; one thread per rank, some 2 %% of a step"

EXCLUDED = {
    "algorithm": "the order of additions is fixed, and with it the all-reduce",
    "wire_dtype": "gradients would be rounded once per rank",
    "layer_drop": "every rank would leave out other layers",
    "find_unused_parameters": "every shard has a gradient of every parameter",
}

OTHERS = {"parameter-server": "which adds gradients in another order", "none": "which adds none over the ranks"}


def complete(args):
    """The options do not exclude each other; where --reproducible is among them, the micro-batch is a shard.

    Raises:
        ValueError: they do, or the global batch has no such shards.
    """
    if not args.reproducible:
        if args.virtual_ranks is not None:
            raise ValueError(f"--virtual-ranks {args.virtual_ranks} is for --reproducible: add it")
        return
    if args.sync in OTHERS:
        raise ValueError(f"--reproducible excludes --sync {args.sync}, {OTHERS[args.sync]}")
    for name, why in EXCLUDED.items():
        if getattr(args, name):
            raise ValueError(f"--reproducible excludes --{name.replace('_', '-')}: {why}")
    count = args.virtual_ranks = args.virtual_ranks or VIRTUAL_RANKS
    batch, micro = args.global_batch, args.micro_batch
    if count & (count - 1):
        below = 1 << count.bit_length() >> 1
        raise ValueError(f"--virtual-ranks {count} is no power of two; {below} or {2 * below} would do")
    length, rest = divmod(batch, count)
    if rest:
        near = " or ".join(str(n * count) for n in (length, length + 1) if n)
        raise ValueError(
            f"--reproducible cuts the global batch into {count} equal shards, and its {batch} samples do not divide "
            f"so; choose --global-batch {near}, or other --virtual-ranks"
        )
    if micro not in (None, length):
        raise ValueError(
            f"--micro-batch {micro}: with --reproducible it is a shard of {batch} / {count} = {length} samples; "
            f"leave it out, or choose other --virtual-ranks"
        )
    args.micro_batch = length


def check_ranks(args, size):
    """All ranks have as many shards.

    Raises:
        ValueError: they have not.
    """
    if args.reproducible and args.virtual_ranks % size:
        more = "" if size & (size - 1) else f", or give --virtual-ranks {size} or more"
        raise ValueError(
            f"--reproducible: {args.virtual_ranks} shards do not divide among {size} ranks; "
            f"{sizes(args)} would do{more}"
        )


def one_thread():
    """NumPy's matrix products will use one thread, so that they add in one order on any cores; before NumPy loads.

    Raises:
        ValueError: the environment says otherwise, or NumPy has loaded without its saying so.
    """
    for name in THREADS:
        value = os.environ.get(name)
        if value != "1" and (value is not None or "numpy" in sys.modules):
            told = f"NumPy has loaded without {name}=1" if value is None else f"{name} is {value}"
            wanted = " ".join(f"{variable}=1" for variable in THREADS)
            raise ValueError(f"--reproducible needs one thread per rank, and {told}; start with {wanted}")
    os.environ.update(dict.fromkeys(THREADS, "1"))


def words(args):
    """What is done, for the heading."""
    if not args.reproducible:
        return ""
    return f"; {args.virtual_ranks} shards are added in one order, with the same bits on {sizes(args)}"


def sizes(args):
    """The numbers of ranks that divide the shards, for people."""
    *others, last = (str(1 << i) for i in range(args.virtual_ranks.bit_length()))
    return f"{', '.join(others)} or {last} ranks" if others else "1 rank"
