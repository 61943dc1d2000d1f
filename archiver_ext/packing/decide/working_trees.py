"""Which files are the user's own: the project's, and those of packages whose files lie in a working tree.

An editable install, and what PYTHONPATH leads to, is being written like the project itself:
no server has it, and an index may know its name as somebody else's.
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
# The last two Python imports at its start; Debian's link to /etc.
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
        self._bases: dict[str, Path] = {}  # of the trees, by what is the user's in them

    def owns(self, path: Path) -> bool:
        """Whether a file is the user's: below the root and not installed there, or in a working tree."""
        return self.base_of(path) is not None

    def base_of(self, path: Path) -> Path | None:
        """The directory that the names of its tree's modules start at; None if it is not the user's."""
        if not path.is_absolute() and not path.exists():
            return None  # what is no file has names such as "<string>", and torch.classes "_classes.py"
        found = path.resolve()
        self._packages()
        above = str(found)
        while above:
            if base := self._bases.get(above):
                return base
            above = above.rpartition("/")[0]
        return self.root if _is_below(found, self.root) else None

    def member(self, path: Path) -> str:
        """The name in an archive of a file of the user's; links are not followed."""
        for base, scope in self._packages():
            if path.is_relative_to(scope):
                return path.relative_to(base).as_posix()
        return path.relative_to(self.root).as_posix()

    def shown(self, path: Path) -> str:
        """A file's name in reasons, which archives hold: of the user's, no path of this machine."""
        found = path.resolve()
        if found.is_relative_to(self.root):
            return str(found.relative_to(self.root))
        return self.member(found) if self.owns(found) else str(found)

    def file(self, member: str) -> Path:
        """The file that has a name in an archive, there or not."""
        for base, scope in self._packages():
            if (base / member).is_relative_to(scope):
                return base / member
        return self.root / member

    def bases(self) -> dict[str, str]:
        """Where archive names start on disk, by their first part; of those that are not here, by ""."""
        # Of two that have the same directory, the first one counts, as for member.
        return {"": str(self.root)} | {
            scope.name: str(base) for base, scope in reversed(self._packages()) if scope.is_dir()
        }

    def in_project(self, path: Path) -> bool:
        """Whether a file lies below the root, and is not installed there."""
        return _is_below(path.resolve(), self.root)

    def elsewhere(self, top: str, path: Path) -> bool:
        """Whether the file of a top-level module, or of one below it, lies in some other working tree."""
        return _in_working_tree(top, path.resolve())

    def holds_name(self, top: str) -> bool:
        """Whether an import of that top-level name may bring a module of the user's; imports nothing."""
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
        """Base and own directory, or file, of the top-level modules in working trees; the deepest first."""
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
        """What is the user's beside a top-level module: all of a package, and of the project's folder."""
        return place.parent if place.is_file() and _is_below(place, self.root) else place


def _places(module: ModuleType) -> list[Path]:
    """The file of a top-level module, or the directories of a package."""
    file = getattr(module, "__file__", None)
    paths = [Path(file).resolve()] if isinstance(file, str) else []
    if not hasattr(module, "__path__"):
        return paths
    packages = [path.parent for path in paths if path.stem == "__init__"]
    return packages or [Path(each).resolve() for each in list(module.__path__) if isinstance(each, str)]


def _is_below(path: Path, root: Path) -> bool:
    # Not is_relative_to, which takes long: this is asked for each module of the process.
    found, above = os.path.join(path, ""), os.path.join(root, "")
    if not found.startswith(above) or _INSTALLED_DIRECTORIES.intersection(path.relative_to(root).parts):
        return False
    # Python itself may lie in the project, as conda and uv put it there.
    return not any(found.startswith(each) and not above.startswith(each) for each in _standard_library())


@cache
def _standard_library() -> tuple[str, ...]:
    """Its directories, with a slash at the end."""
    places = {os.path.realpath(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")}
    return tuple(os.path.join(place, "") for place in sorted(places))


@cache
def _in_working_tree(top: str, path: Path) -> bool:
    if top in _NEVER or _INSTALLED_DIRECTORIES.intersection(path.parts) or not path.exists():
        return False
    return not os.path.join(path, "").startswith(_standard_library()) and not installs(top, path)
