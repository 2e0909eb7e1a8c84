"""What a Reducer cannot do is told when it is made, on every rank, before a gradient is sent."""

from .replicas import check_alike

CAPS = "bucket_cap_mb", "first_bucket_mb", "last_bucket_mb"
FLAGS = "overlap", "find_unused_parameters", "check_finite", "rebuild_buckets", "reproducible"


def check(comm, parameters, caps, flags, algorithm, exchange):
    """Parameters and options of a Reducer are alike on all ranks, and the options make sense.

    Args:
        caps, flags: the values of CAPS and FLAGS.

    Raises:
        ValueError, TypeError: as for Reducer.
    """
    options = dict(zip((*CAPS, *FLAGS), (*map(float, caps), *flags), strict=True))
    options |= {"algorithm": algorithm, "exchange": exchange and exchange.name}
    check_alike(comm, options, parameters)  # first: from here on either all ranks raise an error, or none
    if min(caps) <= 0:
        sizes = ", ".join(f"{name}={cap}" for name, cap in zip(CAPS, caps, strict=True))
        raise ValueError(f"bucket sizes are positive: {sizes}; below the parameters' sizes each has its own bucket")
    _, find_unused_parameters, _, rebuild_buckets, reproducible = flags
    if find_unused_parameters and rebuild_buckets:
        raise ValueError(
            "rebuild_buckets measures the order of one step, and with find_unused_parameters steps differ; "
            "pass only one of them"
        )
    if algorithm is not None and exchange is not None:
        raise ValueError(f"{algorithm=} is of the all-reduce, which exchange {exchange.name!r} replaces; pass one")
    if reproducible:
        if find_unused_parameters:
            raise ValueError(
                "reproducible adds every micro-batch's gradient of every parameter; pass it without "
                "find_unused_parameters"
            )
        if algorithm is not None or exchange is not None:
            given = f"{algorithm=}" if exchange is None else f"exchange {exchange.name!r}"
            raise ValueError(f"reproducible has an all-reduce of its own, not {given}; pass one")
        if comm.size & (comm.size - 1):
            below = 1 << comm.size.bit_length() >> 1
            raise ValueError(
                f"reproducible: gradients of {comm.size} ranks make no full binary tree; {below} or {2 * below} would"
            )
    names = [p.name for p in parameters]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"parameter names occur more than once: {', '.join(twice)}")
    comm.explain("allreduce", 0, algorithm)  # it is there, or the error says what is
    if wrong := [p for p in parameters if p.data.dtype.kind in "biuc"]:
        raise TypeError(f"gradients are averaged, so parameters are floats: {', '.join(map(repr, wrong))}")
