"""README.md shows code that is there."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def test_the_ring_it_shows_is_the_real_one():
    (shown,) = re.findall(r"```python\n(def .*?)```", README, re.DOTALL)
    assert f"\n\n\n{shown}" in (ROOT / "mpicoll" / "algorithms" / "ring.py").read_text() + "\n\n"


def test_the_files_it_names_are_there():
    for name in re.findall(r"`((?:mpicoll|scripts|hostfiles|algorithms|training)/[\w./]*)`|\]\(([\w./]+)\)", README):
        path = name[0] or name[1]
        assert (ROOT / path).exists() or (ROOT / "mpicoll" / path).exists(), path


def test_it_can_be_read_in_one_sitting():
    assert len(README.splitlines()) <= 150
