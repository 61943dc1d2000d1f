"""Draws memory by workers, of the same results: what a worker adds is a slope."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from benchmarks.shared.plots import COLOURS, legend, pyplot, save


def draw(result: dict[str, Any], file: Path) -> Path:
    """Write the figure, in the format that the file's suffix names: a panel for each size of the weights."""
    sizes = sorted({one["megabytes"] for one in result["table"]})
    figure, axes = pyplot().subplots(1, len(sizes), figsize=(2.7 * len(sizes), 2.4), layout="constrained")
    for axis, size in zip(axes.flat, sizes, strict=True):
        rows = sorted(
            (one for one in result["table"] if one["megabytes"] == size), key=lambda one: one["workers"]
        )
        workers = [one["workers"] for one in rows]
        for name, label in (("stock", "stock TorchServe"), ("pool", "interpool")):
            middle = [statistics.median(one[f"{name}_mb"]) for one in rows]
            axis.plot(workers, middle, "o-", color=COLOURS[name], markersize=4, label=label)
        axis.set_title(f"{size:,} MB of weights" if size else "a small model", fontsize=9)
        axis.set_xlabel("workers", fontsize=8)
        axis.set_xticks(workers)
        axis.set_ylim(bottom=0)
        axis.yaxis.set_major_formatter("{x:,g}")
        axis.tick_params(labelsize=7)
        axis.grid(axis="y", alpha=0.3)
    axes.flat[0].set_ylabel("memory, MB", fontsize=8)
    legend(figure, 2)
    return save(figure, file, "Memory by workers, of stock TorchServe and of interpool")
