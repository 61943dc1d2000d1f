"""Observes files and folders that an archive's code searches for, and hides those that only this machine has.

Code may test for a folder, or list it, and raise its own error, which then does not name the missing file.
"""

from __future__ import annotations

import errno
import glob
import linecache
import os
import sys
from typing import TYPE_CHECKING, Any

from interpool.archiver_ext.packing.decide.project_data import holds_data
from interpool.archiver_ext.packing.observe.own_work import OwnWork
from interpool.archiver_ext.packing.observe.stacks import stack_of
from interpool.archiver_ext.source_lines import source_line
from interpool.archiver_ext.tracebacks import is_packaged, name_in_package

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from types import FrameType

    from interpool.archiver_ext.packing.prove.project_files import ProjectFiles

_WRITING = os.O_WRONLY | os.O_RDWR
_SEEN = ("open", "os.listdir", "os.scandir", "ctypes.dlopen")


class MissingFiles:
    """Records the paths that are searched for, from its creation on.

    Files of the project itself are not found: a path on this machine leads nowhere on a server.

    Args:
        sources: names of the archived modules' files for messages, by their names in the archive.
        hidden: the project's files.
    """

    def __init__(self, sources: Mapping[str, str], hidden: ProjectFiles) -> None:
        self._sources = sources
        self._hidden = hidden
        self._asked: dict[str, str] = {}
        self._refused: dict[str, str] = {}
        self._own_work = OwnWork()
        stat = os.stat

        def noted_stat(path: Any, *args: Any, **kwargs: Any) -> os.stat_result:
            caller = sys._getframe(1)
            if caller.f_code.co_filename != linecache.__file__:  # torch formats its stack at each seed
                self._note(path, caller)
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
        asked, self._asked = self._asked, {}
        with self._own_work.running():
            return _missing(asked, folder, project)

    def refused(self) -> dict[str, str]:
        """Return files of the project that were searched for by their paths since the last call.

        Returns:
            The paths, with the line that searched for each; "" if no code of the archive did.
        """
        refused, self._refused = self._refused, {}
        return refused

    def _hook(self, event: str, args: tuple[Any, ...]) -> None:
        if event in _SEEN and args:
            self._note(args[0], sys._getframe(1), args[2] if event == "open" else 0)

    def _note(self, path: Any, frame: FrameType | None, flags: Any = 0) -> None:
        if self._own_work.is_running or not isinstance(path, (str, bytes, os.PathLike)):
            return
        with self._own_work.running():
            # From 3.14 on, pathlib lists "folder/".
            name, line = os.path.normpath(os.fsdecode(path)), self._line(frame)
            if line:
                self._asked[name] = line  # keep the last search: earlier ones may be mere tests
            is_written = isinstance(flags, int) and flags & _WRITING
            if is_written or not self._hidden.holds(name) or not self._is_archives(frame):
                return
            self._refused[name] = line
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)

    def _is_archives(self, frame: FrameType | None) -> bool:
        """Return whether an archive searches, and not the import system, a traceback or the server's code."""
        while frame is not None and not is_packaged(name := frame.f_code.co_filename):
            # The server may have some of the project's modules, too, if the user says so.
            if (
                frame.f_code.co_name == "_find_and_load"
                or name == linecache.__file__
                or self._hidden.covers(name)
            ):
                return False
            frame = frame.f_back
        return True  # another thread, or a library that unpickles its object

    def _line(self, frame: FrameType | None) -> str:
        """Return the innermost line of the archive's code; "" if there is none."""
        for each in stack_of(frame):
            shown = self._sources.get(name_in_package(each.f_code.co_filename))
            if shown is not None:
                text = linecache.getline(each.f_code.co_filename, each.f_lineno, each.f_globals)
                return source_line(shown, each.f_lineno, text)
            if each.f_code.co_name == "_find_and_load":
                return ""  # the import system searches for modules
        return ""


def _missing(asked: Mapping[str, str], folder: Path, project: Mapping[str, Path]) -> dict[str, str]:
    found: dict[str, str] = {}
    for path, line in asked.items():
        relative = os.path.relpath(path, folder) if os.path.isabs(path) else path
        if relative.startswith("..") or relative == ".":
            continue
        base = project.get(relative.split("/")[0], project[""])
        if _lacks(folder / relative, base / relative):
            found.setdefault(glob.escape(relative) + _as_folder(base / relative), line)
    return found


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
