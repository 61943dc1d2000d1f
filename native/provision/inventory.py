"""Describes the cache for people: its sets, their purpose, size, last use, and current use."""

from __future__ import annotations

import contextlib
import json
import math
import time
from dataclasses import dataclass
from pathlib import Path

from interpool.native.provision.cache_limits import DAY_S, DAYS, GIGABYTES, Limits
from interpool.native.provision.holding import is_held
from interpool.native.provision.sweeping import disk_bytes, kept_for, sets


@dataclass(frozen=True)
class CachedSet:
    """The copies for one Python, torch and interpool.

    Attributes:
        name: of its directory.
        python: CPython's version; "" if unknown.
        torch: torch's version; "" if unknown.
        slots: the number of interpreters that it has copies for.
        bytes: its size on disk.
        unused_days: days since a process last started to use it.
        is_held: whether a process uses it now.
        prepared: files of `interpool prepare` that name it.
    """

    name: str
    python: str
    torch: str
    slots: int
    bytes: int
    unused_days: float
    is_held: bool
    prepared: tuple[str, ...]


def inventory(root: Path) -> list[CachedSet]:
    """Return all sets, the most recently used first."""
    found = []
    for directory in sets(root):
        with contextlib.suppress(OSError):  # it is being removed
            found.append(_describe(directory))
    return sorted(found, key=lambda each: each.unused_days)


def describe(found: list[CachedSet]) -> list[str]:
    """Return a table as lines."""
    rows = [("set", "size", "interpreters", "last used", "for")]
    for each in found:
        used = "in use" if each.is_held else _days(each.unused_days)
        made_for = f"CPython {each.python or '?'}, torch {each.torch or '?'}"
        made_for += "".join(f"; kept for {file}" for file in each.prepared)
        rows.append((each.name, size(each.bytes), str(each.slots), used, made_for))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


def size(count: float) -> str:
    """Format a number of bytes."""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"


def rule(within: Limits) -> str:
    """Describe what is removed automatically."""
    parts = []
    if math.isfinite(within.unused_s):
        parts.append(f"what is unused for {within.unused_s / DAY_S:g} days is removed ({DAYS})")
    if math.isfinite(within.size):
        parts.append(f"what was unused longest is removed from more than {size(within.size)} ({GIGABYTES})")
    return "; ".join(parts) or "nothing is removed by itself"


def _days(days: float) -> str:
    if days < 1:
        return "today"
    return "yesterday" if days < 2 else f"{days:.0f} days ago"


def _describe(directory: Path) -> CachedSet:
    facts = {}
    with contextlib.suppress(OSError, ValueError):
        facts = json.loads((directory / "environment.json").read_text())
    return CachedSet(
        directory.name,
        str(facts.get("python") or "").partition(" ")[0],
        str(facts.get("torch") or ""),
        len(list(directory.glob("slots/[0-9]*"))),
        disk_bytes(directory),
        max(0.0, (time.time() - directory.stat().st_mtime) / DAY_S),
        is_held(directory),
        tuple(map(str, kept_for(directory))),
    )
