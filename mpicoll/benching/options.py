"""Sizes, types and choices as users of nccl-tests write them. No MPI here."""

from __future__ import annotations

import re

from ..algorithms import COLLECTIVES

MEASURED = (*COLLECTIVES, "sendrecv")
REDUCING = ("reduce", "allreduce", "reduce_scatter")
ROOTED = ("broadcast", "reduce", "gather", "scatter")
KIB = 1024
FACTORS = {"": 1, "K": KIB, "M": KIB**2, "G": KIB**3, "T": KIB**4}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)([KMGT]?)(?:I?B)?")

# nccl-tests' names of types, and NumPy's; types that NCCL does not have go by NumPy's name
TYPES = {
    "int8": "int8",
    "uint8": "uint8",
    "int32": "int32",
    "uint32": "uint32",
    "int64": "int64",
    "uint64": "uint64",
    "half": "float16",
    "float": "float32",
    "double": "float64",
    "bfloat16": "bfloat16",
    "f8e4m3": "float8_e4m3fn",
    "f8e5m2": "float8_e5m2",
    "int16": "int16",
    "uint16": "uint16",
    "longdouble": "longdouble",
    "complex64": "complex64",
    "complex128": "complex128",
    "clongdouble": "clongdouble",
    "bool": "bool",
}
OPS = ("sum", "prod", "max", "min", "avg")
PEERS = ("mpi", "gloo", "nccl")


def parse_size(text: str) -> int:
    """8, 64K, 16M or 8G as bytes; suffixes are binary, as in nccl-tests.

    Raises:
        ValueError: no such size, or less than a byte.
    """
    match = _SIZE.fullmatch(text.strip().upper())
    if match is None:
        raise ValueError(f"{text!r} is no size; write bytes, such as 8, 64K, 16M or 8G (K is 1024)")
    value = int(float(match[1]) * FACTORS[match[2]])
    if value < 1:
        raise ValueError(f"{text!r} is less than a byte")
    return value


def sizes(begin: int, end: int, factor: int | None = None, step: int | None = None) -> list[int]:
    """The sizes in bytes from begin to end, each `factor` times the last, or `step` more.

    Raises:
        ValueError: there are none, or the factor leads nowhere.
    """
    if begin > end:
        raise ValueError(f"-b {begin} is more than -e {end}: there is no size to measure")
    if step is not None:
        return list(range(begin, end + 1, step))
    if factor is None or factor < 2:
        raise ValueError(f"-f {factor} never leads from -b {begin} to -e {end}; it is 2 or more")
    found = [begin]
    while found[-1] * factor <= end:
        found.append(found[-1] * factor)
    return found


def type_name(text: str) -> str:
    """NumPy's name of a type that goes by its name there or in nccl-tests.

    Raises:
        ValueError: there is no such type.
    """
    if text in TYPES:
        return TYPES[text]
    if text in TYPES.values():
        return text
    raise ValueError(f"-d {text!r} is no type; there are {', '.join(TYPES)}, and all")


def shown_type(name: str) -> str:
    """nccl-tests' name of NumPy's type."""
    return next((short for short, long in TYPES.items() if long == name), name)


def names(text: str, known: tuple[str, ...]) -> list[str]:
    """The names in a list with commas.

    Raises:
        ValueError: one is not known, or is there twice.
    """
    found = [name for name in text.lower().replace(" ", "").split(",") if name]
    for name in found:
        if name not in known:
            raise ValueError(f"{name!r} is unknown; there are {', '.join(known)}")
    if len(set(found)) < len(found) or not found:
        raise ValueError(f"{text!r} names {'one twice' if found else 'none'}")
    return found
