"""Pictures as SVG, by matplotlib, which is loaded only when one is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f5f00", "#5f5f5f")


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
        raise NoPlot("--svg needs matplotlib, which comes with the extra plot: pip install 'mpicoll[plot]'") from None
    mpl.use("svg")
    mpl.rcParams.update({"svg.hashsalt": "mpicoll", "svg.fonttype": "none", "font.family": "DejaVu Sans"})
    return mpl


def save(picture: Any, path: str | Path) -> None:
    picture.savefig(path, format="svg", metadata={"Date": None, "Creator": "mpicoll"})
