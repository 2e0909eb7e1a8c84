"""What a Reducer cannot do is told when it is made, on every rank, before anything is sent."""

from .replicas import check_layout


def check(comm, parameters, caps, algorithm, exchange, find_unused_parameters, rebuild_buckets, reproducible):
    """The options of a Reducer of these parameters make sense, and the parameters are alike on all ranks.

    Raises:
        ValueError, TypeError: as for Reducer.
    """
    bucket_cap_mb, first_bucket_mb, last_bucket_mb = caps
    if min(caps) <= 0:
        raise ValueError(f"bucket sizes are positive: {bucket_cap_mb=}, {first_bucket_mb=}, {last_bucket_mb=}")
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
    check_layout(comm, parameters)
