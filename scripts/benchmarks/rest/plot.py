"""Draws what ``scripts/bench rest`` measured: rates, latency and CPU time of each case."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.shared.plots import Panel, dots


def draw(result: dict[str, Any], file: Path) -> Path:
    """Write the figure, in the format that the file's suffix names."""
    panels = [
        Panel(title, {case: figures[what] for case, figures in result["cases"].items()}, log=True)
        for title, what in (
            ("requests a second", "rates"),
            ("99th percentile, ms", "p99"),
            ("the workers' CPU time of a request, ms", "cpu_ms"),
        )
    ]
    return dots(panels, file)
