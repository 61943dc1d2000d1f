"""Draws what ``scripts/bench weights`` measured: memory, and the times until workers answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.shared.plots import Panel, dots


def draw(result: dict[str, Any], file: Path) -> Path:
    """Write the figure, in the format that the file's suffix names."""

    def rows(what: str) -> dict[str, dict[str, list[float]]]:
        return {f"{one['megabytes']:,} MB x {one['workers']}": _of_both(one, what) for one in result["table"]}

    registered = {f"{one['megabytes']:,} MB": _of_both(one, "s") for one in result["registrations"]}
    panels = [
        Panel("weights x workers: memory, MB (PSS)", rows("mb")),
        Panel("from 1 worker until all answer, s", rows("scaled_s")),
        Panel("from registration to an answer, s", registered),
    ]
    return dots(panels, file)


def _of_both(one: dict[str, Any], what: str) -> dict[str, list[float]]:
    return {server: one[f"{server}_{what}"] for server in ("stock", "pool")}
