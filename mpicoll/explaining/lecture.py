"""The index of the lecture, mpicoll/lecture.md, as text for a terminal."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import NamedTuple

PATH = Path(__file__).parent.parent / "lecture.md"


class Entry(NamedTuple):
    """A row of the index: an idea, the files it lives in, the commands that show it and its tests, in Markdown."""

    section: str
    idea: str
    files: str
    command: str
    test: str


def entries() -> list[Entry]:
    """All rows of the tables, with the heading above them."""
    found, section = [], ""
    for line in PATH.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            section = line.removeprefix("## ")
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith("| ") and len(cells) == 4 and cells[1] != "file":
            found.append(Entry(section, *cells))
    return found


def index_text(width: int) -> str:
    """The index, an idea at a time: files, then the command, then the test."""
    lines, section = [], None
    for entry in entries():
        if entry.section != section:
            section = entry.section
            lines += ["", section.upper(), ""]
        lines += textwrap.wrap(entry.idea, width)
        for text in (entry.files, entry.command, entry.test):
            plain = text.replace("`", "")
            lines += textwrap.wrap(
                plain, width, initial_indent="    ", subsequent_indent="        ", break_long_words=False
            )
    return "\n".join(lines[1:])
