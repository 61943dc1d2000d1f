"""Results of trials of libraries in private interpreters: ``known_libraries.json``.

``scripts/bench libraries`` writes the table, and its copy in ``docs/extensions.md``. Most libraries that are
not in it work, too. ``interpool doctor --imports``, and the verification or registration of an archive, warn
of a library that does not compute.
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
        version: the tested version.
        date: of the test, as YYYY-MM-DD.
        computes: whether several interpreters of a process got correct answers at once.
        failure: the failure if they did not.
    """

    distribution: str
    version: str
    date: str
    computes: bool
    failure: str

    @property
    def said(self) -> str:
        """The row as a clause: the installed version, the result, and the test's version and date."""
        tried = f"tried with {self.version}, {self.date}"
        name = f"{_normal(self.distribution)} {_version_here(self.distribution)}".strip()
        if self.computes:
            return f"{name} is known to compute there ({tried})"
        return f"{name} is known to fail in private interpreters: {self.failure} ({tried})"


def known_library(distribution: str) -> KnownLibrary | None:
    """Return the row of a distribution; None if it was not tested."""
    return _known(TABLE).get(_normal(distribution))


@cache
def _known(table: Path) -> dict[str, KnownLibrary]:
    found = json.loads(table.read_text(encoding="utf-8"))
    rows = [KnownLibrary(**row, date=found["date"]) for row in found["libraries"]]
    return {_normal(row.distribution): row for row in rows}


def _normal(name: str) -> str:
    """Return a distribution's name in pip's normal form, without extras."""
    return re.sub(r"[-_.]+", "-", name.partition("[")[0]).lower()


def _version_here(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""
