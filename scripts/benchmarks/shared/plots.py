"""What all figures have in common."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any


def pyplot() -> ModuleType:
    """matplotlib.pyplot, for figures in files: the same numbers make the same file."""
    import matplotlib as mpl

    mpl.use("agg")
    mpl.rcParams.update({"svg.hashsalt": "interpool", "svg.fonttype": "none"})
    from matplotlib import pyplot as plt

    return plt


def save(figure: Any, file: Path) -> Path:
    """Write a figure, in the format that the file's suffix names, and forget it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, metadata={"Date": None} if file.suffix == ".svg" else None)
    pyplot().close(figure)
    return file
