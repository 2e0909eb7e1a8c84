"""A run that goes on from a checkpoint: its arguments, what must be as it was, and where its arrays go. Collective.

Rank 0 alone reads; the other ranks get everything from it, so the folder need not be on their nodes.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from . import checkpoint, options, recipes
from .replicas import on_host

# Whatever is not named here says what is trained, and stays as it was.
# Not the run's, or in steps:
ELSEWHERE = {
    "checkpoint", "resume", "stop_at", "metrics", "timeline", "device", "epochs", "elastic", "check_replicas",
}  # fmt: skip
FREE = {  # how long, and how it is computed: may change, by rounding it changes the results
    "steps", "data", "micro_batch", "checkpoint_every", "sync", "dedicated_server", "algorithm", "bucket_cap_mb",
    "rebuild_buckets", "no_overlap", "progress_thread", "check_finite",
}  # fmt: skip
OF_SYNC = {"dedicated_server", "algorithm", "bucket_cap_mb", "no_overlap"}  # another --sync might not have them
EARLY = {"reproducible"}  # is needed before a checkpoint can be read

PARAMETERS, OPTIMIZER = "parameters.", "optimizer."  # what the names of arrays begin with


class Resumed(NamedTuple):
    """A checkpoint to go on from: the same on all ranks, but that rank 0 alone has the arrays."""

    path: str
    arrays: dict[str, np.ndarray]
    about: dict[str, Any]


def from_rank_0(comm, make):
    """The bytes that `make()` gives on rank 0, on every rank.

    Raises:
        ValueError: on every rank, with the message of rank 0's ValueError or OSError.
    """
    content, failed = b"", False
    if comm.rank == 0:
        try:
            content = make()
        except (ValueError, OSError) as error:
            content, failed = str(error).encode(), True
    # All ranks learn of rank 0's problem here, instead of waiting for what never comes.
    length, failed = comm.broadcast(np.array([len(content), failed]))
    array = np.frombuffer(content, np.uint8).copy() if comm.rank == 0 else np.empty(length, np.uint8)
    content = comm.broadcast(array).tobytes()
    if failed:
        raise ValueError(content.decode())
    return content


def read(comm, args):
    """The Resumed that --resume names, or None without it; the arguments are complete then.

    Raises:
        ValueError: on every rank; it cannot be read, or an argument contradicts it.
    """
    if not args.resume:
        return None
    arrays = {}

    def make():
        path = checkpoint.find(args.resume)
        found, about = checkpoint.load(path)
        arrays.update(found)
        return json.dumps([str(path), about]).encode()

    path, about = json.loads(from_rank_0(comm, make))
    merge(args, about["arguments"], path)
    return Resumed(path, arrays, about)


def merge(args, saved, path):
    """What was not given is as in the checkpoint, and then as in the recipe.

    Raises:
        ValueError: what was given, or needed before the checkpoint was read, contradicts it.
    """
    given = args.given - ELSEWHERE
    kept = saved.keys() - given - (OF_SYNC if "sync" in given else set())
    for name in sorted(saved.keys() & (given - FREE | EARLY)):
        now, then = getattr(args, name), saved[name]
        if now != then:
            flag = "--" + name.replace("_", "-")
            way_out = f"give {flag}" if name in EARLY and then else f"leave {flag} out"
            raise ValueError(f"{flag} is {now}, in checkpoint {path} it is {then}; {way_out}, or train anew elsewhere")
    for name in kept:
        if not hasattr(args, name):
            raise ValueError(f"checkpoint {path} has an argument {name!r}, which this version of mpicoll does not know")
        setattr(args, name, saved[name])
    if args.epochs is not None:
        args.steps = None
    args.checkpoint = args.checkpoint or str(Path(path).parent)
    options.complete(args)


def about(args, parts):
    """What a checkpoint says of a run, for JSON."""
    words = {name: value for name, value in vars(args).items() if name in args.known - ELSEWHERE}
    if args.recipe in recipes.GPTS:
        words["preset"] = args.recipe
    return {
        "arguments": {**words, "steps": parts.steps},
        "data_sha256": parts.data.sha256,
        "vocabulary": getattr(parts.data, "vocabulary", None),
    }


def arrays(model, optimizer):
    """name → array of all that the next step depends on, where it is."""
    state = {OPTIMIZER + name: array for name, array in optimizer.state().items()}
    return {PARAMETERS + p.name: p.data for p in model.parameters} | state


def check_data(resumed, data):
    """The data are those of the checkpoint.

    Raises:
        ValueError: they are not.
    """
    then, now = resumed.about["vocabulary"], getattr(data, "vocabulary", None)
    if then != now:
        lacking, new = sorted(set(then or "") - set(now or "")), sorted(set(now or "") - set(then or ""))
        raise ValueError(
            f"the data have another vocabulary than checkpoint {resumed.path}: "
            f"{len(lacking)} characters are missing: {lacking[:5]}, and {len(new)} are new: {new[:5]}"
        )
    if (then := resumed.about["data_sha256"]) != data.sha256:
        raise ValueError(
            f"the data have the sha256 {data.sha256[:12]}, those of checkpoint {resumed.path} had {then[:12]}; "
            f"--data FILE names the same ones"
        )


def check_arrays(path, there, here):
    """The checkpoint's arrays fit these in name, shape and dtype.

    Raises:
        ValueError: they do not; the first difference is named.
    """
    for name in sorted(there.keys() | here.keys()):
        pair = [f"{x[name].dtype}{list(x[name].shape)}" if name in x else "missing" for x in (there, here)]
        if pair[0] != pair[1]:
            raise ValueError(f"checkpoint {path} is of another model: there {name} is {pair[0]}, here {pair[1]}")


def restore(comm, resumed, model, optimizer):
    """The model's parameters and the optimizer's state are the checkpoint's, on every rank that has them.

    Raises:
        ValueError: on every rank; they do not fit.
    """
    own, new = arrays(model, optimizer), {}
    from_rank_0(comm, lambda: check_arrays(resumed.path, resumed.arrays, own) or b"")
    for name in sorted(own):
        new[name] = resumed.arrays[name] if comm.rank == 0 else np.empty(own[name].shape, own[name].dtype)
        if name.startswith(PARAMETERS) or optimizer.replicated:
            comm.broadcast(new[name])
    put(own, new, optimizer)


def put(own, new, optimizer):
    """The arrays that `arrays` has given, and the optimizer, have the values of `new`."""
    for name in own:
        if name.startswith(PARAMETERS):
            own[name][...] = np.asarray(new[name], like=own[name])
    optimizer.restore({name.removeprefix(OPTIMIZER): new[name] for name in own if name.startswith(OPTIMIZER)})


def on_rank_0(model, optimizer):
    """As `arrays`, on the host."""
    return {name: on_host(array) for name, array in arrays(model, optimizer).items()}


def cut(metrics, step):
    """What the open metrics file says of steps after this one, and a summary, is no longer there."""
    metrics.seek(0)
    kept = 0
    for line in metrics.buffer:
        if not is_before(line, step):
            break
        kept += len(line)
    metrics.truncate(kept)


def is_before(line, step):
    """Whether a line of a metrics file is whole and tells of no step after this one."""
    try:
        record = json.loads(line)
    except ValueError:
        return False
    return line.endswith(b"\n") and record.get("event") != "summary" and record.get("step", 0) <= step
