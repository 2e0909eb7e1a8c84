"""Checkpoints: files of named arrays and what belongs to them, whole or not there at all; safetensors' format.

    DIR/step-00000200.safetensors    the one before, kept until the next but one
    DIR/step-00000300.safetensors    the last
    DIR/unfinished/                  while one is written, or was when the program was killed

A checkpoint gets its name by a rename, when all of it is on the disk: a kill at any moment leaves the last good one.
A sha256 over arrays and description tells what a disk or a copy has damaged. Anyone can read the file:
`safetensors.numpy.load_file(path)`; the description is JSON, under "mpicoll" in the header's metadata.
"""

import hashlib
import json
import os
import re
import shutil
from pathlib import Path

import ml_dtypes  # noqa: F401 with it NumPy knows bfloat16
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

SCHEMA = 1
UNFINISHED = "unfinished"


def path_of(folder, step):
    """Where the checkpoint of this step is."""
    return Path(folder) / f"step-{step:08d}.safetensors"


def found(folder):
    """{step: path} of the checkpoints in a folder, by rising step."""
    names = (re.fullmatch(r"step-(\d+)\.safetensors", path.name) for path in Path(folder).glob("step-*.safetensors"))
    return {step: path_of(folder, step) for step in sorted(int(name[1]) for name in names if name)}


def find(where):
    """The path of the newest checkpoint in a folder; of a file, the file.

    Raises:
        ValueError: there is none.
    """
    where = Path(where)
    if not where.is_dir():
        if where.is_file():
            return where
        raise ValueError(f"checkpoint {where}: there is no such file or folder")
    if not (steps := found(where)):
        raise ValueError(f"checkpoint folder {where} has no step-*.safetensors")
    return list(steps.values())[-1]


def prepare(folder, resumed=None):
    """Checkpoints can be saved in the folder, which is there.

    Args:
        resumed: path of the checkpoint that the run goes on from.

    Raises:
        ValueError: they cannot, or those of another run are there, which they would replace.
    """
    folder = Path(folder)
    try:
        (folder / UNFINISHED).mkdir(parents=True, exist_ok=True)
        shutil.rmtree(folder / UNFINISHED)
    except OSError as error:
        raise ValueError(f"checkpoint folder {folder}: {error.strerror}") from None
    goes_on = resumed and Path(resumed).resolve().parent == folder.resolve()
    if (steps := found(folder)) and not goes_on:
        raise ValueError(
            f"checkpoint folder {folder} has a run's checkpoint of step {list(steps)[-1]}: "
            f"--resume {folder} goes on with that run; for another one choose another folder"
        )


def save(folder, step, arrays, about):
    """The folder's last checkpoint is this one. Beside it stays the one before it, and nothing else.

    Args:
        arrays: name → NumPy array.
        about: what belongs to them, a dict that JSON can hold.

    Raises:
        OSError: it could not be written; what was there before still is.
    """
    unfinished, path = Path(folder) / UNFINISHED, path_of(folder, step)
    shutil.rmtree(unfinished, ignore_errors=True)
    about = {**about, "schema": SCHEMA, "step": step}
    text = json.dumps({**about, "sha256": checksum(arrays, about)})
    try:
        unfinished.mkdir(parents=True)
        try:
            save_file(arrays, unfinished / path.name, metadata={"mpicoll": text})
        except SafetensorError as error:
            raise OSError(str(error)) from None
        (unfinished / path.name).chmod(unfinished.stat().st_mode & 0o666)  # as any new file: safetensors' are private
        flush(unfinished / path.name)
        os.replace(unfinished / path.name, path)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    flush(folder)
    steps = found(folder)
    earlier = [other for other in steps if other < step]
    for other in steps.keys() - {step, *earlier[-1:]}:  # later ones are of a run that went on from an earlier one
        steps[other].unlink()


def flush(path):
    """What was written to the file, or the names that were changed in the folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def checksum(arrays, about):
    """The sha256 over names, dtypes, shapes and content of the arrays and over what belongs to them, in hexadecimal."""
    total = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
    for name in sorted(arrays):
        array = arrays[name]
        total.update(f"{name} {array.dtype} {list(array.shape)}\n".encode())
        total.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8))
    return total.hexdigest()


def load(path):
    """(arrays, about) as they were saved, of a checkpoint that is whole; about has "step", too.

    Raises:
        ValueError: it cannot be read, is damaged or not ours; the message names the file, and the one before it.
    """
    try:
        return read(path)
    except ValueError as error:
        earlier = [other for other in found(Path(path).parent).values() if other.name < Path(path).name]
        way_out = f"the one before it: --resume {earlier[-1]}" if earlier else "there is none before it in its folder"
        raise ValueError(f"checkpoint {path} {error}; {way_out}") from None


def read(path):
    """As load; the message of its ValueError only says why."""
    try:
        with safe_open(path, "np") as file:
            text = (file.metadata() or {}).get("mpicoll")
            if text is None:
                raise ValueError("is a safetensors file, but none that mpicoll.train has written")
            about = json.loads(text)
            if about["schema"] != SCHEMA:
                raise ValueError(f"has the schema {about['schema']}; this version of mpicoll reads {SCHEMA}")
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 it is no dict
    except SafetensorError as error:
        raise ValueError(f"is truncated, damaged or no checkpoint at all: {error}") from None
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror or error}") from None
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise ValueError(f"is damaged: its description is not what mpicoll.train writes: {error!r}") from None
    written = about.pop("sha256", None)
    del about["schema"]
    if (actual := checksum(arrays, {**about, "schema": SCHEMA})) != written:
        raise ValueError(f"is damaged: its sha256 is {actual[:12]}, written was {str(written)[:12]}")
    return arrays, about
