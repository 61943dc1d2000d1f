"""Draws what ``scripts/bench serving`` measured: rates, and what a server costs.

.venv/bin/python scripts/benchmarks serving.plot results/serving-….json FOLDER
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import Any

from benchmarks.shared.plots import legend, pyplot, save

# By framework. Okabe and Ito's colours, which the colour-blind can tell apart.
COLOURS = {
    "interpool, packed": "#0072B2",
    "interpool, ordinary archive": "#56B4E9",
    "interpool, direct": "#004468",
    "interpool run": "#8FA6B2",
    "stock TorchServe": "#D55E00",
    "LitServe": "#E69F00",
    "mosec": "#009E73",
    "Ray Serve": "#CC79A7",
    "BentoML": "#555555",
}


def draw(figures: dict[str, dict[str, dict[str, Any]]], folder: Path) -> list[Path]:
    """Write ``serving-rates.svg`` and ``serving-cost.svg``; nothing where there are no figures.

    Args:
        figures: Figures of the benchmark as dicts, by model and framework.
    """
    figures = {model: by_name for model, by_name in figures.items() if by_name}
    if not figures:
        return []
    rates = [(f"{model}: requests/s", _by_workers(by_name, "rate")) for model, by_name in figures.items()]
    latencies = [(f"{model}: p99, ms", _by_workers(by_name, "p99_ms")) for model, by_name in figures.items()]
    memory = [(f"{model}: memory with frontends, MB", _sum_of(by_name)) for model, by_name in figures.items()]
    times = [
        (f"{model}: seconds", {name: _times(each) for name, each in by_name.items()})
        for model, by_name in figures.items()
    ]
    return [
        _panels([rates, latencies], folder / "serving-rates.svg"),
        _panels([memory, times], folder / "serving-cost.svg"),
    ]


def _by_workers(by_name: dict[str, dict[str, Any]], what: str) -> dict[str, dict[str, float]]:
    return {
        name: {
            f"{count} workers": statistics.median(each[what][count]) for count in sorted(each[what], key=int)
        }
        for name, each in by_name.items()
    }


def _sum_of(by_name: dict[str, dict[str, Any]]) -> dict[str, dict[str, float]]:
    own, more = _by_workers(by_name, "workers_mb"), _by_workers(by_name, "frontends_mb")
    return {name: {count: own[name][count] + more[name][count] for count in own[name]} for name in own}


def _times(each: dict[str, Any]) -> dict[str, float]:
    named = {"start": "first_s", "1 to the most": "scaled_s"}
    return {what: statistics.median(each[key]) for what, key in named.items()}


def _panels(rows: list[list[tuple[str, dict[str, dict[str, float]]]]], file: Path) -> Path:
    """Rows of panels of grouped bars: title, and framework to group to value."""
    columns = len(rows[0])
    size = max(7.0, 3.6 * columns), 2.4 * len(rows) + 0.9
    figure, axes = pyplot().subplots(len(rows), columns, figsize=size, squeeze=False, layout="constrained")
    for panels, row in zip(axes, rows, strict=True):
        for panel, (title, bars) in zip(panels, row, strict=True):
            groups = list(next(iter(bars.values())))
            width = 0.8 / len(bars)
            for number, (name, values) in enumerate(bars.items()):
                places = [at + (number - (len(bars) - 1) / 2) * width for at in range(len(groups))]
                panel.bar(places, list(values.values()), width, color=COLOURS[name], label=name)
            panel.set_xticks(range(len(groups)), groups)
            panel.set_title(title, fontsize=9)
            panel.tick_params(labelsize=7)
            panel.grid(axis="y", alpha=0.3)
    legend(figure, 4)
    return save(figure, file)


if __name__ == "__main__":
    draw(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))["figures"], Path(sys.argv[2]))
