"""Imports go one way, and what proves algorithms starts no MPI."""

import ast
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "mpicoll"
PURE = {
    "training.layers",
    "training.attention",
    "training.gpt",
    "training.layer_drop",
    "training.losses",
    "training.models",
    "training.loss_scale",
    "training.optimizers",
    "training.parameter",
    "training.precision",
    "training.data",
    "training.sampler",
    "training.recipes",
    "training.checkpoint",
}

# module or package -> what it may import of mpicoll (itself is understood); what is not listed is a command or a top
ALLOWED = {
    "algorithms": {"language"},  # its types, for signatures: see the last test
    "language": set(),
    "arrays": {"cupy_arrays"},
    "runtime": set(),
    "gpu": set(),
    "foreign": set(),
    "command": {"plot", "runtime"},
    "launch": {"runtime"},
    "probe": {"command", "gpu", "runtime"},
    "cupy_arrays": {"arrays", "foreign", "gpu", "probe"},
    "textbook": set(),
    "cost": {"algorithms", "language", "links", "world"},
    "topology": set(),
    "rules": set(),
    "tuning": {"algorithms", "cost", "pricing", "rules"},
    "tuner": {"algorithms", "arrays", "cost", "pricing", "progress", "rules", "selection", "simulation", "tuning"},
    "pricing": {"language", "algorithms", "cost"},
    "selection": {"algorithms", "cost", "language", "pricing", "rules"},
    "arguments": {"arrays", "foreign"},
    "progress": {"language", "arrays", "gpu"},
    "links": set(),
    "world": {"language", "algorithms", "links"},
    "plot": set(),
    "simulation": {"links", "cost", "algorithms", "training", "plot"},
    "explaining": {
        "links", "cost", "algorithms", "pricing", "rules", "selection", "tuning", "world", "simulation", "plot"
    },
    "debug": {"foreign", "progress"},
    "leaving": {"progress", "watchdog"},
    "watchdog": {"progress"},
    "jobs": {"progress", "algorithms", "selection", "arrays", "arguments"},
    "collectives": {"jobs", "arguments"},
    "communicator": {
        "algorithms", "arrays", "collectives", "debug", "foreign", "gpu", "jobs", "launch", "leaving", "progress",
        "runtime", "selection", "topology", "tuning",
    },
    "survival": {"communicator", "launch", "leaving", "progress"},
    "training": {"algorithms", "command", "cost", "gpu", "plot", "probe", "runtime", "survival"},
    "benching": {
        "algorithms", "arrays", "command", "communicator", "cost", "explaining", "gpu", "plot", "probe", "selection",
        "simulation",
    },
    "experimenting": {"communicator", "plot", "progress", "training"},
    "doctoring": {"gpu", "launch", "probe", "runtime", "topology"},
    "__main__": {"doctor"},
    "bench": None,
    "doctor": None,
    "explain": None,
    "simulate": None,
    "examples": None,
    "experiments": None,
    "train": None,
    "tune": None,
}  # fmt: skip


def imports(path):
    """The modules of the package that a file imports, by the name below mpicoll."""
    module = path.relative_to(PACKAGE).with_suffix("").parts
    package = module[:-1]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = package[: len(package) - node.level + 1]
            names = [node.module] if node.module else [alias.name for alias in node.names]
            yield from (".".join([*base, *name.split(".")]) for name in names)
        elif isinstance(node, ast.ImportFrom | ast.Import):
            names = [node.module] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
            yield from (name.removeprefix("mpicoll.") for name in names if name.startswith("mpicoll."))


def violations(path):
    own = path.relative_to(PACKAGE).with_suffix("").parts[0]
    allowed = ALLOWED[own]
    used = {name.split(".")[0] for name in imports(path)} - {own}
    return set() if allowed is None else used - allowed


FILES = [path for path in sorted(PACKAGE.rglob("*.py")) if path != PACKAGE / "__init__.py"]


@pytest.mark.parametrize("path", FILES, ids=[str(path.relative_to(PACKAGE)) for path in FILES])
def test_imports_go_one_way(path):
    assert not violations(path)


def test_an_import_the_wrong_way_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "PACKAGE", tmp_path)
    (tmp_path / "algorithms").mkdir()
    wrong = tmp_path / "algorithms" / "wrong.py"
    for text in ("from ..progress import run", "from .. import progress", "import mpicoll.progress.run"):
        wrong.write_text(text)
        assert violations(wrong) == {"progress"}


def test_the_reading_order_of_training_leads_through_all_of_it():
    order = importlib.import_module("mpicoll.training").__doc__.split("\n\n")[1]
    named = re.findall(r"\b[a-z_]+(?=[,;.])", order.partition(":")[2].replace("\n", " "))
    there = {path.stem for path in (PACKAGE / "training").glob("*.py")} - {"__init__"}
    assert set(named) == there
    assert len(named) == len(there)


def test_layers_and_data_know_no_ranks():
    for name in PURE:
        path = PACKAGE / (name.replace(".", "/") + ".py")
        used = set(imports(path))
        assert used <= PURE, (name, used)


@pytest.mark.parametrize(
    "module",
    ["mpicoll"]
    + [
        f"mpicoll.{name}"
        for name in (
            "world",
            "cost",
            "runtime",
            "gpu",
            "probe",
            "foreign",
            "train",
            "training.options",
            "training.sample",
            "training.saving",
            "bench",
            "explain",
            "simulate",
            "experiments",
            "tuning",
            "tune",
            "launch",
            "doctor",
            *sorted(PURE),
        )
    ],
)
def test_what_needs_no_mpi_starts_none(module):
    program = f"import sys, {module}; sys.exit('mpi4py.MPI' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)


TYPES = {"Algorithm", "Array", "Chunks", "Comm", "OnRoot", "Op"}


def test_algorithms_touch_nothing_but_their_arguments():
    for path in (PACKAGE / "algorithms").glob("*.py"):
        if path.name != "__init__.py":
            for node in ast.walk(ast.parse(path.read_text())):
                assert not isinstance(node, ast.Try), path
                if isinstance(node, ast.Import):
                    assert {alias.name for alias in node.names} <= {"functools", "itertools"}, path
                if isinstance(node, ast.ImportFrom) and node.module == "language":
                    assert {alias.name for alias in node.names} <= TYPES, path
            if isinstance(node, ast.FunctionDef):  # what it imports is for annotations
                assert not {name for line in node.body for name in used(line)} & TYPES, path


def used(node):
    """The names in a piece of code, but for those in annotations."""
    if isinstance(node, ast.Name):
        yield node.id
    for field, part in ast.iter_fields(node):
        if field not in ("annotation", "returns"):
            for child in part if isinstance(part, list) else [part]:
                yield from used(child) if isinstance(child, ast.AST) else ()
