"""What the examples promise to a reader."""

import difflib
from pathlib import Path

EXAMPLES = Path(__file__).parent.parent / "mpicoll" / "examples"


def test_the_distributed_script_is_the_local_one_but_for_fewer_than_ten_lines():
    local, distributed = ((EXAMPLES / f"{name}.py").read_text().splitlines() for name in ("local", "distributed"))
    changed = [line for line in difflib.ndiff(local, distributed) if line.startswith(("+ ", "- "))]
    assert 0 < len(changed) < 10, "\n".join(changed)
