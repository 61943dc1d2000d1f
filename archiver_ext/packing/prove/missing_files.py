"""Sees which files and folders an archive's code looks for beside its modules, found or not.

Code may ask whether a folder is there, or list it, and say in its own words what it misses: then the error
does not tell that a file is missing, nor which.
"""

from __future__ import annotations

import linecache
import os
import sys
from typing import TYPE_CHECKING, Any

from interpool.archiver_ext.packing.decide.data_files import holds_data
from interpool.archiver_ext.source_lines import source_line
from interpool.archiver_ext.tracebacks import name_in_package

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from types import FrameType

_SEEN = ("open", "os.listdir", "os.scandir", "ctypes.dlopen")


class MissingFiles:
    """Notes the paths that are looked for, from when it is made.

    Args:
        sources: the files of the modules in the archive as they are shown, by their names in it.
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
        """What the project has, and the archive has not, of all that was looked for since the last call.

        Args:
            folder: where the archive's files are laid out.
            project: the directories that the project's files lie in, by the first part of a name in the
                archive; by "", of all others.

        Returns:
            Names as ``--data`` takes them, with the line that looked for each.
        """
        found: dict[str, str] = {}
        asked, self._asked = self._asked, {}
        for path, line in asked.items():
            relative = os.path.relpath(path, folder) if os.path.isabs(path) else path
            if relative.startswith("..") or relative == ".":
                continue
            base = project.get(relative.split("/")[0], project[""])
            if _lacks(folder / relative, base / relative):
                found.setdefault(relative + _as_folder(base / relative), line)
        return found

    def _hook(self, event: str, args: tuple[Any, ...]) -> None:
        if event in _SEEN and args:
            self._note(args[0], sys._getframe(1))

    def _note(self, path: Any, frame: FrameType | None) -> None:
        if self._busy or not isinstance(path, (str, bytes, os.PathLike)):
            return
        self._busy = True  # what is done here looks for files, too
        try:
            if line := self._line(frame):
                # The last one: who asks first only wants to know. From 3.14 on, pathlib lists "folder/".
                self._asked[os.path.normpath(os.fsdecode(path))] = line
        finally:
            self._busy = False

    def _line(self, frame: FrameType | None) -> str:
        """The innermost line of the archive's code; "" if none of it asks."""
        while frame is not None:
            shown = self._sources.get(name_in_package(frame.f_code.co_filename))
            if shown is not None:
                text = linecache.getline(frame.f_code.co_filename, frame.f_lineno, frame.f_globals)
                return source_line(shown, frame.f_lineno, text)
            if frame.f_code.co_name == "_find_and_load":
                return ""  # the import system looks for modules
            frame = frame.f_back
        return ""


def _lacks(archived: Path, original: Path) -> bool:
    """Whether a path is not in the archive, or a folder there lacks files, as the project has them."""
    if not original.exists():
        return False
    if not archived.exists():
        return True
    if not original.is_dir():
        return False
    there = set(os.listdir(archived)) if archived.is_dir() else set()
    return holds_data(original, there)


def _as_folder(original: Path) -> str:
    """How ``--data`` names what is in a folder: a slash stands for all but sources."""
    if not original.is_dir():
        return ""
    return "/*.py" if not holds_data(original) and any(original.glob("*.py")) else "/"
