"""Observes files and folders that an archive's code searches for beside its modules.

Code may test for a folder, or list it, and raise its own error, which then does not name the missing file.
"""

from __future__ import annotations

import glob
import linecache
import os
import sys
from typing import TYPE_CHECKING, Any

from interpool.archiver_ext.packing.decide.project_data import holds_data
from interpool.archiver_ext.source_lines import source_line
from interpool.archiver_ext.tracebacks import name_in_package

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from types import FrameType

_SEEN = ("open", "os.listdir", "os.scandir", "ctypes.dlopen")


class MissingFiles:
    """Records the paths that are searched for, from its creation on.

    Args:
        sources: names of the archived modules' files for messages, by their names in the archive.
    """

    def __init__(self, sources: Mapping[str, str]) -> None:
        self._sources = sources
        self._asked: dict[str, str] = {}
        self._busy = False
        stat = os.stat

        def noted_stat(path: Any, *args: Any, **kwargs: Any) -> os.stat_result:
            self._note(path, sys._getframe(1))
            return stat(path, *args, **kwargs)

        os.stat = noted_stat
        sys.addaudithook(self._hook)

    def missing(self, folder: Path, project: Mapping[str, Path]) -> dict[str, str]:
        """Return paths of the project, missing in the archive, that were searched for since the last call.

        Args:
            folder: the folder of the archive's extracted files.
            project: the directories of the project's files, by the first part of a name in the archive; ""
                for all other names.

        Returns:
            Names in the form of ``--data``, with the line that searched for each.
        """
        found: dict[str, str] = {}
        asked, self._asked = self._asked, {}
        for path, line in asked.items():
            relative = os.path.relpath(path, folder) if os.path.isabs(path) else path
            if relative.startswith("..") or relative == ".":
                continue
            base = project.get(relative.split("/")[0], project[""])
            if _lacks(folder / relative, base / relative):
                found.setdefault(glob.escape(relative) + _as_folder(base / relative), line)
        return found

    def _hook(self, event: str, args: tuple[Any, ...]) -> None:
        if event in _SEEN and args:
            self._note(args[0], sys._getframe(1))

    def _note(self, path: Any, frame: FrameType | None) -> None:
        if self._busy or not isinstance(path, (str, bytes, os.PathLike)):
            return
        self._busy = True  # this code searches for files, too
        try:
            if line := self._line(frame):
                # Keep the last search: earlier ones may be mere tests. From 3.14 on, pathlib lists "folder/".
                self._asked[os.path.normpath(os.fsdecode(path))] = line
        finally:
            self._busy = False

    def _line(self, frame: FrameType | None) -> str:
        """Return the innermost line of the archive's code; "" if there is none."""
        while frame is not None:
            shown = self._sources.get(name_in_package(frame.f_code.co_filename))
            if shown is not None:
                text = linecache.getline(frame.f_code.co_filename, frame.f_lineno, frame.f_globals)
                return source_line(shown, frame.f_lineno, text)
            if frame.f_code.co_name == "_find_and_load":
                return ""  # the import system searches for modules
            frame = frame.f_back
        return ""


def _lacks(archived: Path, original: Path) -> bool:
    """Return whether the archive lacks a path of the project, or files in a folder."""
    if not original.exists():
        return False
    if not archived.exists():
        return True
    if not original.is_dir():
        return False
    there = set(os.listdir(archived)) if archived.is_dir() else set()
    return holds_data(original, there)


def _as_folder(original: Path) -> str:
    """Return the suffix for ``--data``: a slash includes all files of a folder but sources."""
    if not original.is_dir():
        return ""
    return "/*.py" if not holds_data(original) and any(original.glob("*.py")) else "/"
