"""Libraries that were tried in private interpreters, and what became of each: ``known_libraries.json``.

The table is written by ``scripts/bench libraries``, which also shows it in ``docs/extensions.md``. It is no
list of what works: most of what is not in it does. What it says does not compute is warned of, by
``interpool doctor --imports`` and where an archive that needs it is verified or registered.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path

TABLE = Path(__file__).with_suffix(".json")


@dataclass(frozen=True)
class KnownLibrary:
    """One row.

    Attributes:
        distribution: its name.
        version: that was tried.
        date: when, as YYYY-MM-DD.
        computes: whether several interpreters of a process got right answers from it at once.
        failure: what happens where they do not.
    """

    distribution: str
    version: str
    date: str
    computes: bool
    failure: str

    @property
    def said(self) -> str:
        """It in a clause: the version that is here, what happens, and when that was seen with which."""
        tried = f"tried with {self.version}, {self.date}"
        name = f"{_normal(self.distribution)} {_version_here(self.distribution)}".strip()
        if self.computes:
            return f"{name} is known to compute there ({tried})"
        return f"{name} is known to fail in private interpreters: {self.failure} ({tried})"


def known_library(distribution: str) -> KnownLibrary | None:
    """What is known about a distribution; None where it was not tried."""
    return _known(TABLE).get(_normal(distribution))


@cache
def _known(table: Path) -> dict[str, KnownLibrary]:
    found = json.loads(table.read_text(encoding="utf-8"))
    rows = [KnownLibrary(**row, date=found["date"]) for row in found["libraries"]]
    return {_normal(row.distribution): row for row in rows}


def _normal(name: str) -> str:
    """A distribution's name as pip compares it; without extras."""
    return re.sub(r"[-_.]+", "-", name.partition("[")[0]).lower()


def _version_here(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""
