"""Observes the files that a model reads, through an audit hook.

Files that native code opens itself are not visible.
"""

from __future__ import annotations

import importlib.util
import inspect
import linecache
import os
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interpool.archiver_ext.packing.observe.own_work import OwnWork
from interpool.archiver_ext.packing.observe.stacks import stack_of
from interpool.archiver_ext.source_lines import frame_line

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from interpool.archiver_ext.packing.decide.rules import Rules
    from interpool.archiver_ext.packing.decide.working_trees import WorkingTrees

_STANDARD_LIBRARY = os.path.dirname(os.__file__) + os.sep
_PACKING = os.path.dirname(os.path.dirname(__file__)) + os.sep
_COMPILED = (".pyc", ".pyi")
_SHOWING_SOURCES = (linecache.__file__, inspect.__file__)
_CACHES = "__pycache__"
_WRITING = os.O_WRONLY | os.O_RDWR


class OpenedFiles:
    """Records files that are opened for reading.

    Attributes:
        inside: the user's own files, by their names in an archive, with the user's line.
        hidden: those that are hidden or in hidden folders, which often contain passwords.
        outside: other files that the user's own code opened, and had not made before.
    """

    def __init__(self, rules: Rules) -> None:
        self.inside: dict[str, str] = {}
        self.hidden: dict[str, str] = {}
        self.outside: dict[str, str] = {}
        self._rules = rules
        self._made: set[Path] = set()
        self._phase = ""
        self._own_work = OwnWork()
        sys.addaudithook(self._hook)

    @contextmanager
    def importing(self) -> Iterator[None]:
        """Record files that modules read during their import, but not in functions."""
        yield from self._in("importing")

    @contextmanager
    def running(self) -> Iterator[None]:
        """Record all files that are read."""
        yield from self._in("running")

    def _in(self, phase: str) -> Iterator[None]:
        self._phase = phase
        try:
            yield
        finally:
            self._phase = ""

    def _hook(self, event: str, args: tuple[Any, ...]) -> None:
        if not self._phase or event not in ("open", "ctypes.dlopen") or self._own_work.is_running:
            return
        with self._own_work.running(), suppress(OSError, ValueError):  # what is not a path
            self._note(args[0], args[2] if event == "open" else 0, sys._getframe(1))

    def _note(self, name: Any, flags: Any, frame: FrameType | None) -> None:
        if not isinstance(name, (str, bytes)):
            return
        path = Path(os.path.abspath(os.fsdecode(name)))
        if isinstance(flags, int) and flags & _WRITING:
            if not path.exists():
                self._made.add(path)
            return
        asker = _beyond_standard_library(frame)
        if asker is not None and asker.f_code.co_filename.startswith(_PACKING):
            return  # what is installed is looked up while the model is watched
        if path.suffix == ".pyc" and _is_cache(path):
            path = Path(importlib.util.source_from_cache(str(path)))
        # Caches are recreated, and imports are found in other ways.
        if path.suffix in _COMPILED or _CACHES in path.parts or not path.is_file():
            return
        if path.suffix == ".py" and _is_imported(frame, self._rules):
            return
        owner = _owner(frame, self._rules, top_level=self._phase == "importing")
        if owner is None:
            return
        trees = self._rules.trees
        if trees.owns(path):
            name = trees.member(_below_links(path, trees))
            found = self.hidden if _is_hidden(name) else self.inside
            found.setdefault(name, frame_line(owner, trees.shown))
        elif owner is asker and path not in self._made and not path.resolve().is_relative_to("/proc"):
            self.outside.setdefault(str(path.resolve()), frame_line(owner, trees.shown))


def _below_links(path: Path, trees: WorkingTrees) -> Path:
    """Return the path of a user's file, with links followed up to the user's folder, but not in it."""
    for folder in reversed(path.parents):
        if trees.owns(folder):
            return folder.resolve() / path.relative_to(folder)
    return path.resolve()


def _is_cache(path: Path) -> bool:
    return path.parent.name == _CACHES and path.name.count(".") == 2


def _is_imported(frame: FrameType | None, rules: Rules) -> bool:
    """Return whether the import system, or code that shows source lines, opens the file."""
    while frame is not None and not _is_project(frame.f_code.co_filename, rules):
        if frame.f_code.co_name == "_find_and_load" or frame.f_code.co_filename in _SHOWING_SOURCES:
            return True
        frame = frame.f_back
    return False


def _is_hidden(name: str) -> bool:
    return any(part.startswith(".") for part in name.split("/"))


def _owner(frame: FrameType | None, rules: Rules, *, top_level: bool) -> FrameType | None:
    """Return the innermost frame of the project; with ``top_level``, None if no module body is running."""
    found: FrameType | None = None
    for each in stack_of(frame):
        if _is_project(each.f_code.co_filename, rules):
            found = found or each
            if not top_level or each.f_code.co_name == "<module>":
                return found
    return None


def _beyond_standard_library(frame: FrameType | None) -> FrameType | None:
    """Return the innermost frame outside of the standard library, which requested the file."""
    inside = (_STANDARD_LIBRARY, "<")
    return next((each for each in stack_of(frame) if not each.f_code.co_filename.startswith(inside)), None)


def _is_project(filename: str, rules: Rules) -> bool:
    return not filename.startswith("<") and rules.trees.owns(Path(filename))
