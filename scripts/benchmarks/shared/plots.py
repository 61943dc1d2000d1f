"""What all figures have in common."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

# By whose figures they are. Okabe and Ito's colours, which the colour-blind can distinguish.
COLOURS = {"stock": "#D55E00", "pool": "#0072B2"}
# matplotlib's own colour of text and axes, which becomes that of the page's scheme: the ground stays clear.
_BLACK = "#000000"
_SCHEMES = """ <style>
  svg { color: #1f2328; }
  @media (prefers-color-scheme: dark) { svg { color: #e6edf3; } }
  text { fill: currentColor; }
 </style>
"""


def pyplot() -> ModuleType:
    """matplotlib.pyplot, for figures in files: the same numbers make the same file."""
    import matplotlib as mpl

    mpl.use("agg")
    mpl.rcParams.update({"svg.hashsalt": "interpool", "svg.fonttype": "none", "legend.frameon": False})
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


def save(figure: Any, file: Path, title: str) -> Path:
    """Write a figure, in the format that the file's suffix names, and forget it.

    An SVG has the colours of a light and of a dark page: the browser chooses.

    Args:
        figure: matplotlib's.
        file: the file to write.
        title: what the figure shows, for readers who do not see it.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    if file.suffix == ".svg":
        figure.savefig(file, metadata={"Date": None, "Title": title}, transparent=True)
        drawn = file.read_text(encoding="utf-8").replace(_BLACK, "currentColor")
        file.write_text(drawn.replace(" <defs>\n", f"{_SCHEMES} <defs>\n", 1), encoding="utf-8")
    else:
        figure.savefig(file)
    pyplot().close(figure)
    return file
