"""Copies the licenses of a bundle's system libraries from the system's package manager."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_DEBIANS = Path("/usr/share/doc")


def copy_licenses(libraries: Mapping[str, Path], folder: Path) -> dict[str, list[str]]:
    """Copy the licenses of the packages that contain libraries.

    Args:
        libraries: the system's path of each library, by name.
        folder: receives one folder per package.

    Returns:
        For each library the copies, relative to ``folder``'s parent; empty if its package or license is
        unknown.
    """
    found: dict[str, list[str]] = {}
    for name, library in libraries.items():
        found[name] = []
        for text in _licenses_of(library):
            final = folder / text.parent.name / text.name
            final.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(text, final)
            found[name].append(str(final.relative_to(folder.parent)))
    return found


def _licenses_of(library: Path) -> list[Path]:
    for ask in (_of_debian, _of_rpm):
        if found := [path for path in ask(library) if path.is_file()]:
            return found
    return []


def _of_debian(library: Path) -> Iterator[Path]:
    for path in _names_of(library):
        for line in _lines("dpkg-query", "--search", path):
            packages, _, owned = line.partition(": ")
            if owned == path:
                for package in packages.split(", "):
                    yield _DEBIANS / package.partition(":")[0] / "copyright"


def _of_rpm(library: Path) -> Iterator[Path]:
    yield from map(Path, _lines("rpm", "--query", "--licensefiles", "--file", os.path.realpath(library)))


def _names_of(library: Path) -> list[str]:
    """Return the paths under which a package may list the library: /lib may be a link to /usr/lib."""
    path = os.path.realpath(library)
    return [path, path.removeprefix("/usr")] if path.startswith("/usr/lib") else [path, f"/usr{path}"]


def _lines(*command: str) -> list[str]:
    """Return a program's output lines; empty if it does not exist or fails."""
    if shutil.which(command[0]) is None:
        return []
    environment = {**os.environ, "LC_ALL": "C"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return done.stdout.splitlines() if done.returncode == 0 else []
