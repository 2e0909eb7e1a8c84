"""Ways to synchronise gradients, as the command offers them: the one that is used, and those before it, to compare."""

MODES = {
    "allreduce": "an all-reduce per bucket, while backward goes on",
    "after-backward": "the same when backward has ended",
    "per-parameter": "an all-reduce per parameter, while backward goes on",
    "parameter-server": "gradients are reduced to rank 0, which alone updates and broadcasts the parameters",
}
NONE = {"none": "no gradient is exchanged: computation alone is left, and replicas differ"}
WIRES = "float16", "bfloat16"


def check(args):
    """The options do not exclude each other.

    Raises:
        ValueError: they do.
    """
    served, alone = args.sync == "parameter-server", args.sync in NONE
    if (served or alone) and args.wire_dtype:
        raise ValueError(f"--wire-dtype {args.wire_dtype} is for all-reduces; --sync {args.sync} has none")
    if args.algorithm and (served or alone or args.wire_dtype):
        raise ValueError(f"--algorithm {args.algorithm} is of the all-reduce, which --sync or --wire-dtype replaces")
    if args.dedicated_server and not served:
        raise ValueError(f"--dedicated-server is for --sync parameter-server, not {args.sync}")
    if args.sync == "per-parameter" and args.bucket_cap_mb is not None:
        raise ValueError(
            f"--bucket-cap-mb {args.bucket_cap_mb:g} is for buckets of several parameters; --sync per-parameter has "
            f"one for each: pass one of them"
        )
    if alone and (args.checkpoint or args.elastic):
        option = "--checkpoint" if args.checkpoint else "--elastic"
        raise ValueError(f"{option} takes one replica for all, and with --sync none every rank has another; leave it")
    if alone and args.check_replicas:
        raise ValueError(f"--check-replicas {args.check_replicas} would end the run: with --sync none replicas differ")
    if args.rebuild_buckets and (args.find_unused_parameters or args.elastic):
        option = "--find-unused-parameters" if args.find_unused_parameters else "--elastic"
        raise ValueError(f"--rebuild-buckets takes the first step for all, and with {option} steps differ; pass one")
    if args.layer_drop and args.model != "gpt":
        raise ValueError(f"--layer-drop {args.layer_drop:g} leaves out half blocks of a GPT; --model is {args.model}")
    if args.layer_drop and not args.find_unused_parameters:
        raise ValueError("--layer-drop leaves gradients out, which would be waited for: add --find-unused-parameters")


def words(args):
    """What is done, for the heading."""
    more = f", gradients travel as {args.wire_dtype}" if args.wire_dtype else ""
    more += "; rank 0 computes no gradients" if args.dedicated_server else ""
    more += f"; a rank leaves out half a block in {args.layer_drop:.0%} of the cases" if args.layer_drop else ""
    return f"{args.sync}: {(MODES | NONE)[args.sync]}{more}"


def options(args):
    """The Reducer's options for --sync, --wire-dtype, --bucket-cap-mb, --rebuild-buckets and --no-overlap."""
    from .buckets import MIB  # only now: commands name the modes before NumPy may be loaded
    from .exchanges import Nothing
    from .parameter_server import ParameterServer
    from .wire import Wire

    makers = {"parameter-server": ParameterServer, "none": Nothing}
    return {
        "exchange": makers[args.sync]() if args.sync in makers else args.wire_dtype and Wire(args.wire_dtype),
        "rebuild_buckets": args.rebuild_buckets,
        # A parameter above the cap has a bucket of its own.
        "bucket_cap_mb": 1 / MIB if args.sync == "per-parameter" else args.bucket_cap_mb,
        "overlap": not (args.no_overlap or args.sync == "after-backward"),
    }
