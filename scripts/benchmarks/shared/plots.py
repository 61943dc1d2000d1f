"""What all figures have in common."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

# By whose figures they are. Okabe and Ito's colours, which the colour-blind can tell apart.
COLOURS = {"stock": "#D55E00", "pool": "#0072B2"}


def pyplot() -> ModuleType:
    """matplotlib.pyplot, for figures in files: the same numbers make the same file."""
    import matplotlib as mpl

    mpl.use("agg")
    mpl.rcParams.update({"svg.hashsalt": "interpool", "svg.fonttype": "none"})
    from matplotlib import pyplot as plt

    return plt


def legend(figure: Any, columns: int) -> None:
    """Say once, above all panels, what their colours are."""
    handles = {
        label: handle
        for panel in figure.axes
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True)
    }
    figure.legend(handles.values(), handles.keys(), loc="outside upper center", ncols=columns, fontsize=8)


def save(figure: Any, file: Path) -> Path:
    """Write a figure, in the format that the file's suffix names, and forget it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, metadata={"Date": None} if file.suffix == ".svg" else None)
    pyplot().close(figure)
    return file
