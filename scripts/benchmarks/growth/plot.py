"""Draws what ``scripts/bench growth`` measured: memory and latency by models and by workers.

.venv/bin/python scripts/benchmarks growth.plot results/growth-….json FILE.svg
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from benchmarks.growth.parts import of_fewest_interpreters
from benchmarks.shared.plots import COLOURS, logarithmic, pyplot, save


def draw(rows: list[dict[str, Any]], file: Path) -> Path:
    """Write the figure, in the format that the file's suffix names.

    Args:
        rows: the benchmark's table; what is computed in it is drawn hollow.
    """
    rows = of_fewest_interpreters(rows)
    figure, axes = pyplot().subplots(2, 2, figsize=(8.0, 5.6), layout="constrained")
    each = max((row["workers"] for row in rows if row["models"] > 1), default=0)
    by = {
        "models": [row for row in rows if row["workers"] == each],
        "workers": [row for row in rows if row["models"] == 1],
    }
    titles = {"models": f"models, {each} workers each", "workers": "workers of one model"}
    for column, (what, some) in enumerate(by.items()):
        for server in ("pool", "stock"):
            colour = COLOURS[server]
            own = sorted((row for row in some if row["server"] == server), key=lambda row: int(row[what]))
            asked = [row for row in own if not row["computed"]]
            memory, latency = axes[0][column], axes[1][column]
            at = [row[what] for row in own]
            memory.plot(at, [row["memory_mb"] for row in own], "-", color=colour, alpha=0.5)
            memory.plot(
                [row[what] for row in asked],
                [row["memory_mb"] for row in asked],
                "o",
                color=colour,
                label=f"{server}, measured",
            )
            computed = [row for row in own if row["computed"]]
            if computed:
                memory.plot(
                    [row[what] for row in computed],
                    [row["memory_mb"] for row in computed],
                    "o",
                    color=colour,
                    fillstyle="none",
                    label=f"{server}, computed",
                )
            latency.plot([row[what] for row in asked], [row["p50_ms"] for row in asked], "-o", color=colour)
            latency.plot(
                [row[what] for row in asked],
                [row["p99_ms"] for row in asked],
                ":o",
                color=colour,
                markersize=3,
            )
        memory.set_ylabel("MB (PSS), without the frontend", fontsize=8)
        latency.set_ylabel("ms: p50, dotted p99", fontsize=8)
        logarithmic(memory.yaxis)
        latency.set_ylim(bottom=0)
        latency.set_xlabel(titles[what], fontsize=9)
        for panel in (memory, latency):
            logarithmic(panel.xaxis)
            panel.tick_params(labelsize=7)
            panel.grid(alpha=0.3)
        memory.legend(fontsize=7)
    return save(figure, file)


if __name__ == "__main__":
    draw(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))["table"], Path(sys.argv[2]))
