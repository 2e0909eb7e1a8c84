"""Which file is the table, and how it is read and written."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..cost import Wire
from .reader import parse
from .table import SCHEMA, Entry, Measured, Tuned, decide

VARIABLE = "MPICOLL_TUNING"


def default_file() -> Path:
    """The user's own table."""
    folder = os.environ.get("XDG_CONFIG_HOME") or Path("~", ".config").expanduser()
    return Path(folder, "mpicoll", "tuning.json")


def chosen_file() -> Path | None:
    """The table that `auto` uses: the one that MPICOLL_TUNING names, else the user's own if there is one."""
    named = os.environ.get(VARIABLE)
    if named == "none":
        return None
    if named:
        return Path(named)
    return default_file() if default_file().exists() else None


class Source(NamedTuple):
    """A table's file and its content, or the problem with it; all empty if there is no table."""

    file: str = ""
    content: str = ""
    problem: str = ""


def look() -> Source:
    """The table that `auto` uses. An unreadable one is told, not raised: all ranks are to raise it."""
    file = chosen_file()
    if file is None:
        return Source()
    try:
        return Source(str(file), read(file))
    except ValueError as error:
        return Source(str(file), problem=str(error))


def tuned(source: Source, nodes: Sequence[int], mpi: str, hosts: Sequence[str]) -> Tuned | None:
    """What the table says to ranks on these nodes, None without one; arguments as of `decide`.

    Raises:
        ValueError: the table cannot be read or is none.
    """
    if source.problem:
        raise ValueError(source.problem)
    return decide(parse(source.content, source.file), nodes, source.file, mpi, hosts) if source.file else None


def this_mpi() -> str:
    """The MPI underneath, as a table names it."""
    from mpi4py import MPI

    name, version = MPI.get_vendor()
    return f"{name} {'.'.join(map(str, version))}"


def read(file: Path) -> str:
    """The file's content.

    Raises:
        ValueError: it cannot be read.
    """
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        why = error.strerror
    except UnicodeDecodeError:
        why = "it is no text"
    raise ValueError(f"tuning table {file}: {why}; `python -m mpicoll.tune -o FILE` makes one; {VARIABLE}=none: none")


def dumps(entries: dict[str, Entry]) -> str:
    """The table's text, which `parse` reads."""
    layouts = {key: {**entry._asdict(), "links": _links(entry.links)} for key, entry in sorted(entries.items())}
    return _text({"schema": SCHEMA, "layouts": layouts}) + "\n"


def _links(links: Measured) -> dict[str, Any]:
    wires = {name: wire and _wire(wire) for name, wire in (("node", links.node), ("network", links.network))}
    return {**links._asdict(), **wires}


def _wire(wire: Wire) -> dict[str, float]:
    """Its numbers; of a wire with one regime only alpha and beta."""
    return {name: value for name, value in wire._asdict().items() if name in ("alpha", "beta") or wire.eager < math.inf}


def _text(value: Any, depth: int = 0) -> str:
    """As JSON, a line for each rule: what contains neither objects nor lists is on one line."""
    if isinstance(value, float):
        return f"{value:.4g}"
    if not isinstance(value, dict):
        return json.dumps(value)
    items = [f"{json.dumps(key)}: {_text(item, depth + 1)}" for key, item in value.items()]
    if not any(isinstance(item, dict | list | tuple) for item in value.values()):
        return "{" + ", ".join(items) + "}"
    end = "\n" + " " * depth
    return "{" + ",".join(f"{end} {item}" for item in items) + end + "}"


def save(file: Path, key: str, entry: Entry) -> None:
    """The file's entry of this layout is `entry`; those of others stay.

    Rules of collectives that were not measured this time stay, too, if they are of the same host and MPI.

    Raises:
        ValueError: the file is there but is no table.
        OSError: it cannot be written; it is as it was.
    """
    entries = parse(read(file), str(file)) if file.exists() else {}
    old = entries.get(key)
    if old and (old.mpi, old.host) == (entry.mpi, entry.host):
        entry = entry._replace(rules={**old.rules, **entry.rules})
    file.parent.mkdir(parents=True, exist_ok=True)
    new = file.with_name(f"{file.name}.{os.getpid()}")
    try:
        new.write_text(dumps({**entries, key: entry}), encoding="utf-8")
        new.replace(file)  # whoever reads sees the old one or the new one
    finally:
        new.unlink(missing_ok=True)
