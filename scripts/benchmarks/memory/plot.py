"""Draws what ``scripts/bench memory`` measured: a further interpreter or process, and both servers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.shared.plots import COMPUTED, Panel, dots

KINDS = {"lean": ("", "interpreter"), "full": (", all imports", "interpreter"), "process": ("", "process")}


def draw(result: dict[str, Any], file: Path) -> Path:
    """Write the figure, in the format that the file's suffix names; what is computed in it is hollow."""
    further: dict[str, dict[str, list[float]]] = {}
    for what in ("bare", "BERT"):
        for kind, (imports, name) in KINDS.items():
            further.setdefault(what + imports, {})[name] = result["measured"][f"{kind}, {what}: pss, MB"]
    servers = {
        f"{one['models']} x {one['workers']}": {
            "pool": [one["pool, MB"]],
            "stock" + (COMPUTED if one["stock computed"] else ""): [one["stock, MB"]],
        }
        for one in result["table"]
    }
    panels = [
        Panel("a further one: MB (PSS)", further),
        Panel("models x workers of each: MB (PSS)", servers, log=True),
    ]
    return dots(panels, file)
