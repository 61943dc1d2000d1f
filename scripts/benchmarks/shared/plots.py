"""What all figures have in common."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

# By whose figures they are. Okabe and Ito's colours, which the colour-blind can tell apart.
COLOURS = {
    "stock": "#D55E00",
    "pool": "#0072B2",
    "at once": "#009E73",
    "bound": "#CC79A7",
    "process": "#E69F00",
    "interpreter": "#56B4E9",
}
COMPUTED = ", computed"  # ends a name in a panel: drawn hollow


def pyplot() -> ModuleType:
    """matplotlib.pyplot, for figures in files: the same numbers make the same file."""
    import matplotlib as mpl

    mpl.use("agg")
    mpl.rcParams.update({"svg.hashsalt": "interpool", "svg.fonttype": "none"})
    from matplotlib import pyplot as plt

    return plt


@dataclass(frozen=True)
class Panel:
    """What was measured of several things, by several of those in COLOURS.

    Attributes:
        title: the quantity, and its unit.
        rows: from the top, by the thing and by whose they are: the figures of all rounds.
        log: whether the axis is logarithmic; else it begins at nothing.
    """

    title: str
    rows: dict[str, dict[str, list[float]]]
    log: bool = False


def dots(panels: list[Panel], file: Path) -> Path:
    """Write panels beside one another: a dot at each median, a line from the least to the most."""
    height = 0.28 * max(len(panel.rows) for panel in panels) + 1.1
    size = 3.2 * len(panels) + 1.6, height
    figure, axes = pyplot().subplots(1, len(panels), figsize=size, squeeze=False, layout="constrained")
    before: list[str] = []
    for axis, panel in zip(axes.flat, panels, strict=True):
        names = _names([panel])
        colours = list(dict.fromkeys(name.removesuffix(COMPUTED) for name in names))
        for name in names:
            colour = name.removesuffix(COMPUTED)
            beside = 0.6 * ((colours.index(colour) + 0.5) / len(colours) - 0.5)
            own = {at + beside: row[name] for at, row in enumerate(panel.rows.values()) if row.get(name)}
            middle = [statistics.median(values) for values in own.values()]
            pairs = [*zip(middle, own.values(), strict=True)]
            axis.errorbar(
                middle,
                list(own),
                xerr=[[at - min(values) for at, values in pairs], [max(values) - at for at, values in pairs]],
                fmt="o",
                color=COLOURS[colour],
                markerfacecolor=COLOURS[colour] if name == colour else "white",
                markersize=4,
                elinewidth=1,
                clip_on=False,
                label=name,
            )
        labels = list(panel.rows)
        for at in range(0, len(labels), 2):
            axis.axhspan(at - 0.5, at + 0.5, color="#F3F3F3", zorder=0)
        axis.set_yticks(range(len(labels)), [] if labels == before else labels)
        axis.set_ylim(len(labels) - 0.5, -0.5)
        axis.tick_params(labelsize=7)
        axis.grid(axis="x", alpha=0.3)
        axis.set_title(panel.title, fontsize=9)
        axis.xaxis.set_major_formatter("{x:,g}")
        if panel.log:
            logarithmic(axis.xaxis)
        else:
            axis.set_xlim(left=0)
        before = labels
    legend(figure, len(_names(panels)))
    return save(figure, file)


def _names(panels: list[Panel]) -> list[str]:
    """All that the panels have figures of, in the order of COLOURS."""
    there = {name for panel in panels for row in panel.rows.values() for name in row}
    return [name for colour in COLOURS for name in (colour, colour + COMPUTED) if name in there]


def logarithmic(axis: Any) -> None:
    """Make an axis logarithmic, with numbers that are written out at 1, 3, 10, …"""
    axis.axes.set(**{f"{axis.axis_name}scale": "log"})
    axis.get_major_locator().set_params(subs=(1, 3))
    axis.set_major_formatter("{x:,g}")
    axis.set_minor_formatter("")


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
