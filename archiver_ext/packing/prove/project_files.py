"""Recognizes files of the project, which a server does not have, among all that a trial may read."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from interpool.archiver_ext.packing.decide.working_trees import is_below

if TYPE_CHECKING:
    from collections.abc import Iterable

_SYSTEM = ("bin", "dev", "etc", "lib", "lib64", "proc", "run", "sbin", "sys", "usr", "var")


class ProjectFiles:
    """The project's files.

    Not among them are installed packages, Python, temporary files, hidden files and the system's own folders,
    even if they are below the project's folder.

    Args:
        folders: the project's folders, resolved.
        since_ns: a time in nanoseconds since the epoch; files that changed later are the trial's own.
    """

    def __init__(self, folders: Iterable[Path], since_ns: int) -> None:
        self._folders = [(folder, _others(folder)) for folder in folders]
        self._since_ns = since_ns

    def holds(self, path: str) -> bool:
        """Return whether a file or folder exists and is the project's; links are followed."""
        if not self.covers(path):
            return False
        try:
            return os.lstat(os.path.realpath(path)).st_ctime_ns < self._since_ns
        except OSError:
            return False

    def covers(self, path: str) -> bool:
        """Return whether a path is among the project's, whether or not it exists; links are followed."""
        found, named = os.path.realpath(path), os.path.abspath(path)
        return any(
            _starts(found, str(folder))
            and is_below(Path(found), folder)
            and not _is_hidden(named if _starts(named, str(folder)) else found, folder)
            and not any(_starts(found, each) for each in others)
            for folder, others in self._folders
        )


def _others(folder: Path) -> list[str]:
    """Return folders below that one which are not the project's."""
    ours = str(Path(__file__).parents[3])
    places = [sys.prefix, sys.exec_prefix, sys.base_prefix, tempfile.gettempdir(), os.getcwd(), ours]
    found = [os.path.realpath(each) for each in places + [f"/{name}" for name in _SYSTEM]]
    return [each for each in found if Path(each) != folder and _starts(each, str(folder))]


def _is_hidden(path: str, folder: Path) -> bool:
    return any(part.startswith(".") for part in Path(path).relative_to(folder).parts)


def _starts(path: str, folder: str) -> bool:
    return os.path.join(path, "").startswith(os.path.join(folder, ""))
