"""A table's text, checked part by part; what is wrong is told with its line."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import Any

from ..algorithms import FAMILIES
from ..cost import Wire
from ..rules import Rule
from .table import SCHEMA, Entry, Measured


def parse(content: str, file: str) -> dict[str, Entry]:
    """The entries of a table's text, by layout.

    Raises:
        ValueError: it is no table, or of another schema; the text names the file and the line.
    """
    try:
        table = json.loads(content)
    except json.JSONDecodeError as error:
        raise ValueError(f"tuning table {file}, line {error.lineno}: {error.msg}") from None
    return _Reader(content, file).entries(table)


class _Reader:
    """Checks a table part by part. A part is told by its path: the keys that lead to it."""

    def __init__(self, content: str, file: str) -> None:
        self.content, self.file = content, file

    def wrong(self, path: Sequence[str], why: str) -> ValueError:
        """The error of a part, with its line: each key of the path is looked for after the one before."""
        position = 0
        for key in path:
            found = re.compile(re.escape(json.dumps(key)) + r"\s*:").search(self.content, position)
            position = found.end() if found else position
        line = self.content.count("\n", 0, position) + 1
        what = f"{path[-1]}: " if path else ""
        return ValueError(f"tuning table {self.file}, line {line}: {what}{why}")

    def entries(self, table: Any) -> dict[str, Entry]:
        schema = table.get("schema") if isinstance(table, dict) else None
        if schema != SCHEMA:
            here = ["schema"] if schema is not None else []
            raise self.wrong(here, f"{schema!r} is not {SCHEMA}, which this mpicoll reads; tune again")
        layouts = self.object([], table, ("schema", "layouts"))["layouts"]
        if not isinstance(layouts, dict):
            raise self.wrong(["layouts"], 'is no object of layouts such as "2+2"')
        return {key: self.entry(["layouts", key], given) for key, given in layouts.items()}

    def entry(self, path: list[str], given: Any) -> Entry:
        if not re.fullmatch(r"[1-9]\d*(\+[1-9]\d*)*|\d+(,\d+)+", path[-1]):
            raise self.wrong(path, 'is no layout; they are like "4", "2+2" or "0,1,0,1"')
        fields = self.object(path, given, Entry._fields)
        for name in ("mpi", "host", "date"):
            if not isinstance(fields[name], str):
                raise self.wrong([*path, name], f"{fields[name]!r} is no text")
        copied = fields["copied"]
        if not isinstance(copied, list) or len(copied) != 2:
            raise self.wrong([*path, "copied"], f"{copied!r} is not two numbers of bytes, from and up to")
        start, stop = (self.number([*path, "copied"], value, int) for value in copied)
        rules = fields["rules"]
        if not isinstance(rules, dict):
            raise self.wrong([*path, "rules"], "is no object of collectives")
        found = {name: self.rules([*path, "rules", name], ranges) for name, ranges in rules.items()}
        links = self.links([*path, "links"], fields["links"])
        return Entry(fields["mpi"], fields["host"], fields["date"], links, (start, stop), found)

    def links(self, path: list[str], given: Any) -> Measured:
        fields = dict(self.object(path, given, Measured._fields))
        for name, value in fields.items():
            here = [*path, name]
            if name in ("node", "network"):
                fields[name] = value if value is None else self.wire(here, value)
            elif name == "shared":
                if not isinstance(value, bool):
                    raise self.wrong(here, f"{value!r} is neither true nor false")
            else:
                fields[name] = self.number(here, value, int if name == "segment" else float)
        if fields["segment"] < 1:
            raise self.wrong([*path, "segment"], "is less than a byte")
        return Measured(**fields)

    def wire(self, path: list[str], given: Any) -> Wire:
        names = Wire._fields if isinstance(given, dict) and "eager" in given else Wire._fields[:2]
        fields = self.object(path, given, names)
        kinds = {"eager": int}
        wire = Wire(**{k: self.number([*path, k], value, kinds.get(k, float)) for k, value in fields.items()})
        for name in ("beta", "beta_long"):
            if name in fields and fields[name] == 0:
                raise self.wrong([*path, name], "is 0, which no link can do")
        return wire

    def rules(self, path: list[str], given: Any) -> tuple[Rule, ...]:
        names = FAMILIES.get(path[-1])
        if names is None:
            raise self.wrong(path, f"is no collective; there are {', '.join(FAMILIES)}")
        if not isinstance(given, list) or not given or any(not isinstance(r, list) or len(r) != 2 for r in given):
            raise self.wrong(path, '[[up to so many bytes, "algorithm"], ..., [null, "algorithm"]] is expected')
        borders = [self.number(path, upto, int) for upto, _ in given[:-1]]
        if borders != sorted(set(borders)) or given[-1][0] is not None:
            raise self.wrong(path, f"{[upto for upto, _ in given]} are not ascending numbers of bytes, then null")
        for _, name in given:
            if not isinstance(name, str) or name not in names:
                raise self.wrong(path, f"{name!r} is no algorithm; there are {', '.join(names)}")
        return tuple(Rule(upto, name) for upto, name in given)

    def object(self, path: list[str], given: Any, names: Sequence[str]) -> dict[str, Any]:
        if not isinstance(given, dict) or set(given) != set(names):
            raise self.wrong(path, f"an object with {', '.join(names)} is expected, and no more")
        return given

    def number(self, path: list[str], value: Any, kind: type[Any]) -> Any:
        if isinstance(value, bool) or not isinstance(value, int | kind) or not 0 <= value < math.inf:
            raise self.wrong(path, f"{value!r} is no {'whole ' * (kind is int)}number from 0 up")
        return kind(value)
