"""Determines the user's own files: those of the project, and of packages in working trees.

Editable installs and packages on PYTHONPATH are under development like the project itself. No server has
them, and an index may have another project of the same name.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import sysconfig
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from interpool.archiver_ext.packing.decide.distributions import installs

if TYPE_CHECKING:
    from types import ModuleType

_INSTALLED_DIRECTORIES = {"site-packages", "dist-packages"}
# Python imports the last two at its start; Debian links them to /etc.
_NEVER = ("__main__", "__mp_main__", "interpool", "sitecustomize", "usercustomize")


class WorkingTrees:
    """The user's files, and their names in an archive.

    Args:
        root: the project's directory, resolved.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._known: set[str] = set()
        self._trees: list[tuple[Path, Path]] = []
        self._bases: dict[str, Path] = {}  # each tree's base, by the user's directory or file in it

    def owns(self, path: Path) -> bool:
        """Return whether a file is the user's.

        Below the root and not installed there, or in a working tree.
        """
        return self.base_of(path) is not None

    def base_of(self, path: Path) -> Path | None:
        """Return the directory at which module names of the file's tree start.

        None if it is not the user's.
        """
        if not path.is_absolute() and not path.exists():
            return None  # such as "<string>", or "_classes.py" of torch.classes
        found = _resolved(str(path)) if path.is_absolute() else str(path.resolve())
        self._packages()
        above = found
        while above:
            if base := self._bases.get(above):
                return base
            above = above.rpartition("/")[0]
        return self.root if is_below(found, self.root) else None

    def member(self, path: Path) -> str:
        """Return the name of a user's file in an archive; links are not followed."""
        for base, scope in self._packages():
            if path.is_relative_to(scope):
                return path.relative_to(base).as_posix()
        return path.relative_to(self.root).as_posix()

    def shown(self, path: Path) -> str:
        """Return a file's name for reasons, which archives contain: relative for the user's files."""
        found = path.resolve()
        if found.is_relative_to(self.root):
            return str(found.relative_to(self.root))
        return self.member(found) if self.owns(found) else str(found)

    def file(self, member: str) -> Path:
        """Return the path of a file with this name in an archive, whether or not it exists."""
        for base, scope in self._packages():
            if (base / member).is_relative_to(scope):
                return base / member
        return self.root / member

    def bases(self) -> dict[str, str]:
        """Return the directories at which archive names start, by first part; "" for all other names."""
        # If two have the same directory, the first one counts, as for member.
        return {"": str(self.root)} | {
            scope.name: str(base) for base, scope in reversed(self._packages()) if scope.is_dir()
        }

    def in_project(self, path: Path) -> bool:
        """Return whether a file is below the root, and not installed there."""
        return is_below(path.resolve(), self.root)

    def elsewhere(self, top: str, path: Path) -> bool:
        """Return whether a file of a top-level module is in a working tree other than the project.

        Args:
            top: name of the top-level module.
            path: of the file.
        """
        return _in_working_tree(top, path.resolve())

    def holds_name(self, top: str) -> bool:
        """Return whether an import of that top-level name may find a user's module; imports nothing."""
        if (self.root / top).exists() or (self.root / f"{top}.py").exists():
            return True
        if top in sys.stdlib_module_names or top in _NEVER:
            return False
        try:
            spec = importlib.util.find_spec(top)
        except (ImportError, AttributeError, ValueError):
            return False
        places = [] if spec is None else [spec.origin, *(spec.submodule_search_locations or ())]
        return any(_in_working_tree(top, Path(place).resolve()) for place in places if place)

    def _packages(self) -> list[tuple[Path, Path]]:
        """Return base and directory, or file, of top-level modules in working trees; the deepest first."""
        new = sys.modules.keys() - self._known
        self._known |= new
        before = len(self._trees)
        for name in new:
            if "." not in name:
                places = _places(sys.modules[name])
                self._trees += [
                    (each.parent, self._scope(each)) for each in places if _in_working_tree(name, each)
                ]
        if len(self._trees) > before:
            self._trees.sort(key=lambda tree: (-len(tree[1].parts), tree))
            self._bases = {str(scope): base for base, scope in reversed(self._trees)}
        return self._trees

    def _scope(self, place: Path) -> Path:
        """Return the user's area around a top-level module: the whole package, or the project's folder."""
        return place.parent if place.is_file() and is_below(place, self.root) else place


def _places(module: ModuleType) -> list[Path]:
    """Return the file of a top-level module, or the directories of a package."""
    file = getattr(module, "__file__", None)
    paths = [Path(file).resolve()] if isinstance(file, str) else []
    if not hasattr(module, "__path__"):
        return paths
    packages = [path.parent for path in paths if path.stem == "__init__"]
    return packages or [Path(each).resolve() for each in list(module.__path__) if isinstance(each, str)]


@cache
def _resolved(path: str) -> str:
    """Return an absolute path without links, as realpath does, which reads the links of each folder anew."""
    folder, name = os.path.split(path)
    found = os.path.join(_resolved_folder(folder), name)
    return os.path.realpath(found) if name == ".." or os.path.islink(found) else found


@cache
def _resolved_folder(path: str) -> str:
    return os.path.realpath(path)


def is_below(path: Path | str, root: Path) -> bool:
    """Return whether a resolved path is below a resolved directory, and not installed there."""
    # is_relative_to is too slow to call for each module of the process.
    found, above = os.path.join(path, ""), os.path.join(root, "")
    if not found.startswith(above) or _INSTALLED_DIRECTORIES.intersection(found[len(above) :].split("/")):
        return False
    # Python itself may be in the project, where conda and uv can install it.
    return not any(found.startswith(each) and not above.startswith(each) for each in _standard_library())


@cache
def _standard_library() -> tuple[str, ...]:
    """Return the standard library's directories, each with a final slash."""
    places = {os.path.realpath(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")}
    return tuple(os.path.join(place, "") for place in sorted(places))


@cache
def _in_working_tree(top: str, path: Path) -> bool:
    if top in _NEVER or _INSTALLED_DIRECTORIES.intersection(path.parts) or not path.exists():
        return False
    return not os.path.join(path, "").startswith(_standard_library()) and not installs(top, path)
