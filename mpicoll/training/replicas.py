"""Are the replicas the same? Comparisons over ranks; each gives the same answer on every rank.

They use i-forms, which are complete after their wait also inside `mpicoll.group()`.
"""

import hashlib

import numpy as np


def on_host(array):
    """The array as NumPy's, by waiting for the device if it is on one; the one way back to the host in training."""
    return array if isinstance(array, np.ndarray) else array.get()


def digest(content):
    """The sha256 of bytes or of a contiguous array, as 32 bytes in a uint8 array."""
    return np.frombuffer(hashlib.sha256(content).digest(), np.uint8)


def fingerprints(parameters):
    """One sha256 per parameter, over the bytes of its data: (parameters, 32) uint8."""
    # The view as bytes also serves types that the buffer protocol does not know (bfloat16).
    rows = [digest(on_host(p.data).reshape(-1).view(np.uint8)) for p in parameters]
    return np.stack(rows) if rows else np.empty((0, 32), np.uint8)


def first_difference(comm, parameters):
    """None if all parameters have the same bits on all ranks, else (the first that differs, ranks unlike rank 0)."""
    own = fingerprints(parameters)
    everyone = comm.iallgather(own.reshape(-1)).wait().reshape(comm.size, len(own), 32)
    differs = (everyone != everyone[0]).any(axis=2)
    for i, parameter in enumerate(parameters):
        if differs[:, i].any():
            return parameter, [int(r) for r in np.flatnonzero(differs[:, i])]
    return None


class ReplicasDiffer(Exception):
    """Replicas that ought to be the same are not; raised on every rank."""


def check(comm, parameters, step):
    """All replicas are the same after this step. Collective.

    Raises:
        ReplicasDiffer: on every rank, naming step, ranks and the first parameter that differs.
    """
    if found := first_difference(comm, parameters):
        parameter, ranks = found
        who = f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"
        raise ReplicasDiffer(f"replicas differ after step {step}: {parameter.name} of {who} is not rank 0's")


def check_alike(comm, options, parameters):
    """All ranks have the same options, and parameters of the same names, shapes and dtypes in the same order.

    Args:
        options: {name: value}, of the same names on all ranks.

    Raises:
        ValueError: on every rank, naming the ranks that differ from rank 0 and the first thing in which they do.
    """
    layout = [f"{p.name} {p.data.dtype}{list(p.data.shape)}" for p in parameters]
    own = "\n".join([*map(repr, options.values()), *layout]).encode()
    digests = comm.iallgather(digest(own)).wait().reshape(comm.size, 32)
    ranks = [int(r) for r in np.flatnonzero((digests != digests[0]).any(axis=1))]
    if not ranks:
        return
    # Only now is the whole text worth sending.
    lengths = comm.iallgather(np.array([len(own)])).wait()
    padded = np.zeros(lengths.max(), np.uint8)
    padded[: len(own)] = np.frombuffer(own, np.uint8)
    texts = comm.iallgather(padded).wait().reshape(comm.size, -1)
    reference, other = (texts[r, : lengths[r]].tobytes().decode().split("\n") for r in (0, ranks[0]))
    i = next((i for i, pair in enumerate(zip(reference, other, strict=False)) if pair[0] != pair[1]), None)
    i = min(len(reference), len(other)) if i is None else i
    here, there = (side[i] if i < len(side) and side[i] else "no parameter" for side in (reference, other))
    what, name = "models", f"parameter {i - len(options)}"
    if i < len(options):
        what, name = "reducers' options", list(options)[i]
    raise ValueError(
        f"the {what} differ between ranks: rank(s) {', '.join(map(str, ranks))} differ from rank 0; "
        f"{name} is {here} on rank 0 and {there} on rank {ranks[0]}"
    )
