"""Draws what ``scripts/bench soak`` sampled: a panel for each quantity.

.venv/bin/python scripts/benchmarks soak.plot results/soak-….json FILE.svg
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import Any

from benchmarks.shared.plots import pyplot, save

POINTS = 50  # in a panel, at most; the lines go through all samples
PANELS = {
    "memory_mb": "host's memory, MB (PSS)",
    "descriptors": "its descriptors",
    "mappings": "its mappings",
    "threads": "its threads",
    "p50_ms": "median latency, ms",
    "shims_mb": "shims, MB (PSS)",
}


def draw(samples: list[dict[str, Any]], file: Path, counted_from: float) -> Path:
    """Write the figure, in the format that the file's suffix names.

    Args:
        samples: the benchmark's Sample as dicts.
        counted_from: when the part begins through which the lines go.
    """
    figure, axes = pyplot().subplots(2, 3, figsize=(9.0, 4.6), layout="constrained")
    minutes = [sample["seconds"] / 60 for sample in samples]
    thinned = -(-len(samples) // POINTS)
    late = [number for number, sample in enumerate(samples) if sample["seconds"] >= counted_from]
    for panel, (what, title) in zip(axes.flat, PANELS.items(), strict=True):
        values = [float(sample[what]) for sample in samples]
        panel.plot(minutes[::thinned], values[::thinned], ".", color="#0072B2", markersize=3)
        if len(late) > 1:
            at = [minutes[number] for number in late]
            line = statistics.linear_regression(at, [values[number] for number in late])
            ends = [at[0], at[-1]]
            panel.plot(ends, [line.intercept + line.slope * end for end in ends], color="#D55E00")
        panel.set_title(title, fontsize=9)
        panel.set_ylim(bottom=0, top=max(1e-9, 1.2 * max(values)))
        panel.tick_params(labelsize=7)
        panel.grid(alpha=0.3)
    figure.supxlabel("minutes", fontsize=9)
    return save(figure, file)


if __name__ == "__main__":
    kept = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    draw(kept["samples"], Path(sys.argv[2]), kept["counted_from"])
