"""Pictures as SVG or PNG, by matplotlib, which is loaded only when one is asked for."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f5f00", "#5f5f5f")
KINDS = (".svg", ".png")


class NoPlot(ValueError):
    """matplotlib is not installed."""


def load() -> Any:
    """matplotlib, set so that the same picture is the same file.

    Raises:
        NoPlot: it is not installed.
    """
    try:
        import matplotlib as mpl
    except ImportError:
        raise NoPlot("a picture needs matplotlib, of the extra plot: pip install 'mpicoll[plot]'") from None
    mpl.use("svg")
    mpl.rcParams.update({"svg.hashsalt": "mpicoll", "svg.fonttype": "none", "font.family": "DejaVu Sans"})
    return mpl


def check_name(option: str, path: str) -> None:
    """Nothing, or a ValueError: the name that `option` gives to a picture does not say of which kind it is."""
    if not path.endswith(KINDS):
        raise ValueError(f"{option} {path}: the name ends in {' or '.join(KINDS)}")


def check(option: str, path: str) -> None:
    """Nothing if a picture can be saved there, as far as is known before there is one.

    Raises:
        ValueError: the name is of no kind of picture, matplotlib is missing, or the file cannot be written.
    """
    check_name(option, path)
    load()
    file = Path(path)
    if not file.parent.is_dir():
        raise ValueError(f"{option} {path}: there is no folder {file.parent}")
    if file.is_dir() or not os.access(file if file.exists() else file.parent, os.W_OK):
        raise ValueError(f"{option} {path}: it cannot be written")


def save(picture: Any, path: str | Path) -> None:
    """The file holds the picture, as the kind that its name says."""
    if Path(path).suffix == ".png":
        picture.savefig(path, format="png", dpi=150)
    else:
        picture.savefig(path, format="svg", metadata={"Date": None, "Creator": "mpicoll"})
