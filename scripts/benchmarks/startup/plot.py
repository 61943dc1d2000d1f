"""Draws what ``scripts/bench startup`` measured: each time, of the pool and of stock TorchServe."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.shared.plots import Panel, dots


def draw(result: dict[str, Any], file: Path) -> Path:
    """Write the figure, in the format that the file's suffix names."""
    rows: dict[str, dict[str, list[float]]] = {}
    for name, values in result["measured"].items():
        server, _, what = name.partition(": ")
        rows.setdefault(what, {})[server] = values
    return dots([Panel("seconds", rows, log=True)], file)
