"""What ``scripts/bench scaling --models`` and ``gpu`` measure of a model; draws a panel for each model."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.shared import report
from benchmarks.shared.plots import legend, pyplot, save

COLUMNS = 5
# By way: colour, line, marker. Okabe and Ito's colours, which the colour-blind can distinguish.
STYLES = {
    "interpreters": ("#0072B2", "-", "o"),
    "processes": ("#D55E00", "--", "s"),
    "forked processes": ("#E69F00", ":", "^"),
    "graph": ("#009E73", "-.", "D"),
    "one interpreter": ("#777777", "-", "x"),
}
NAMES = {
    "interpreters": "an interpreter per thread",
    "processes": "a process each",
    "forked processes": "forked processes",
    "graph": "TorchScript, or torch.export (below the model's name)",
    "one interpreter": "one interpreter",
}


@dataclass
class Curves:
    """One model's figures.

    Attributes:
        model: its name.
        graph: what made a graph of it: "script", "trace", "export", or "" if none did.
        rates: calls a second, for each way and width, by round.
    """

    model: str
    graph: str = ""
    rates: dict[str, dict[int, list[float]]] = field(default_factory=dict)

    def ratio(self, over: tuple[str, int], under: tuple[str, int]) -> float:
        """Of two rates, the median over the rounds."""
        return report.ratio(self.rates[over[0]][over[1]], self.rates[under[0]][under[1]])

    def by_name(self) -> dict[str, list[float]]:
        """The rates, by the names of ways and widths."""
        return {
            f"{way} x {width}": values for way, rates in self.rates.items() for width, values in rates.items()
        }


def draw(suite: list[dict[str, Any]], file: Path) -> Path:
    """Write the figure, in the format that the file's suffix names.

    Args:
        suite: Curves as dicts.
    """
    columns = min(COLUMNS, len(suite))
    rows = -(-len(suite) // columns)
    size = max(7.0, 2.6 * columns), 2.2 * rows + 1.2
    figure, axes = pyplot().subplots(rows, columns, figsize=size, squeeze=False, layout="constrained")
    for panel, curves in zip(axes.flat, suite, strict=False):
        for way, by_width in curves["rates"].items():
            colour, stroke, marker = STYLES[way]
            widths = sorted(map(int, by_width))
            rounds = [by_width[width] if width in by_width else by_width[str(width)] for width in widths]
            middle = [statistics.median(each) for each in rounds]
            panel.plot(widths, middle, stroke, color=colour, marker=marker, markersize=4, label=NAMES[way])
            panel.fill_between(widths, [*map(min, rounds)], [*map(max, rounds)], color=colour, alpha=0.12)
            panel.set_xticks(widths, [str(width) for width in widths])
        graph = curves["graph"]
        panel.set_title(curves["model"] + (f"\n{graph}" if graph else "\nno graph"), fontsize=9)
        panel.set_ylim(bottom=0)
        panel.tick_params(labelsize=7)
        panel.grid(alpha=0.3)
    for panel in axes.flat[len(suite) :]:
        panel.axis("off")
    figure.supxlabel("threads, or processes, that call the model at once", fontsize=9)
    figure.supylabel("calls a second", fontsize=9)
    legend(figure, 2)
    return save(figure, file, "Calls a second, by threads or processes, of each model")
