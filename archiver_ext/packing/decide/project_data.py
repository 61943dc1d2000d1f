"""Finds and checks the project's data files, and adds them to the archive."""

from __future__ import annotations

import contextlib
import glob
import os
import unicodedata
from pathlib import Path
from typing import TYPE_CHECKING

from interpool.archiver_ext.errors import PackError
from interpool.archiver_ext.packing.decide.archive_names import LONGEST_NAME, source_member
from interpool.native.archive.format import MANIFEST_PACKAGE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from interpool.archiver_ext.packing.decide.working_trees import WorkingTrees
    from interpool.archiver_ext.packing.write.exporter import HermeticExporter

_COMPILED = "__pycache__"


def find_data(root: Path, globs: Iterable[str]) -> list[str]:
    """Return the files that match the user's globs, as paths relative to the project's root, sorted.

    ``**`` matches any number of folders. A glob that ends in a slash matches folders with their whole
    content; the name of an empty folder then ends in a slash, too. Omitted are Python's caches, Python
    sources unless a glob ends in ``.py``, and hidden files unless a glob's last part starts with a dot. A
    folder that contains only these counts as empty.

    Args:
        root: the project's directory.
        globs: such as ``mypkg/vocab/*.txt``, relative to the root.

    Raises:
        PackError: a glob matches no file, or leads out of the project.
    """
    found: set[str] = set()
    for pattern in globs:
        if os.path.isabs(pattern) or ".." in Path(pattern).parts:
            raise PackError(
                f"--data {pattern}: it must be relative to the project's root {root} and stay below it"
            )
        matches = [os.path.normpath(name) for name in _matches(root, "", pattern.split("/"))]
        files = {name for name in matches if _is_wanted(root, name, pattern)}
        if pattern.endswith("/"):
            files = {name for folder in matches for name in _whole_folder(root, folder)}
            code_only = [name for name in matches if name != "." and _COMPILED not in Path(name).parts]
            files = files or {f"{name}/" for name in code_only}
        if not files:
            folders = [name for name in matches if (root / name).is_dir() and not pattern.endswith("/")]
            folder = next(iter(folders), "")
            hint = (
                f"; {folder} is a folder: --data '{glob.escape(folder)}/' is all that is in it"
                if folder
                else ""
            )
            raise PackError(f"--data {pattern}: no file below {root} has such a name{hint}")
        found |= files
    return sorted(found)


def _whole_folder(root: Path, folder: str) -> set[str]:
    """Return the files at any depth, and the empty folders."""
    names = {os.path.normpath(name) for name in _below(root, folder)}
    empty = {name for name in names if (root / name).is_dir() and not _visible(root / name)}
    return {name for name in names if _is_wanted(root, name, folder)} | {f"{name}/" for name in empty}


def _matches(root: Path, name: str, parts: list[str]) -> Iterator[str]:
    """Yield the names below ``name`` that match a glob's parts; glob itself follows links in circles."""
    if not parts:
        yield name
    elif parts[0] == "**":
        for each in _below(root, name):
            if len(parts) == 1 or (root / each).is_dir():
                yield from _matches(root, each, parts[1:])
    elif parts[0]:
        for each in glob.iglob(parts[0], root_dir=root / name):
            yield from _matches(root, os.path.join(name, each), parts[1:])
    elif (root / name).is_dir():
        yield from _matches(root, name, parts[1:])


def _below(root: Path, name: str, above: tuple[Path, ...] = ()) -> Iterator[str]:
    """Yield a name, and if it is a folder's, all visible names below it.

    A link to a folder that it lies in is left out.

    Args:
        root: the directory at which names start.
        name: of a file or folder.
        above: the folders above it, without links.
    """
    folder = root / name
    if not folder.is_dir():
        yield name
        return
    real = folder.resolve()
    if any(each.is_relative_to(real) for each in above):
        return
    yield name
    for path in _visible(folder):
        yield from _below(root, os.path.join(name, path.name), (*above, real))


def _visible(folder: Path) -> list[Path]:
    """Return what a folder contains and is not hidden; nothing if the folder cannot be read."""
    with contextlib.suppress(OSError):
        return [path for path in folder.iterdir() if not path.name.startswith(".")]
    return []


def holds_data(folder: Path, but: Collection[str] = ()) -> bool:
    """Return whether a folder contains data at any depth, so that it does not count as empty.

    Args:
        folder: the folder.
        but: names in it to ignore.
    """
    return any(
        not name.endswith((".py", ".pyc")) and not (folder / name).is_dir()
        for path in _visible(folder)
        if path.name not in but
        for name in _below(folder, path.name, (folder.resolve(),))
    )


def _is_wanted(root: Path, name: str, pattern: str) -> bool:
    if not (root / name).is_file() or _COMPILED in Path(name).parts:
        return False
    return not name.endswith(".py") or pattern.endswith(".py")


def save_data(exporter: HermeticExporter, names: Iterable[str]) -> list[str]:
    """Add files of the project to the archive, at their relative paths.

    importlib.resources finds them there, too. Sources of archived modules are in the archive already and only
    listed, and so are empty folders, which are no members.

    Args:
        exporter: not closed yet; all objects and modules have been saved.
        names: the files' names in the archive, relative to an entry of ``sys.path``. Names of empty folders
            end in a slash.

    Returns:
        The members' names for the manifest's ``data``, sorted.

    Raises:
        PackError: a file is missing, not a regular file, outside of the project, has the name of another
            member, or an invalid name.
    """
    saved: list[str] = []
    known = {source_member(exporter, module).lower(): "" for module in exporter.names("intern")}
    for name in sorted({f"{Path(name).as_posix()}{'/' * name.endswith('/')}" for name in names}):
        file = _checked(exporter.rules.trees, name)
        taken = _taken_by(exporter, name)
        if not taken and not _is_source(exporter, name):
            # torch ignores case in names of members
            other = known.setdefault(name.lower(), name)
            taken = "" if other == name else f"{other or 'a module'} has the same name except for its case"
        if taken:
            raise PackError(
                f"{name}: this data file cannot be in the archive, where {taken}\n"
                "  What to do: move or rename the file, or the folder that it is in"
            )
        if not _is_source(exporter, name) and not name.endswith("/"):
            try:
                exporter.save_file(name, file.read_bytes())
            except OSError as error:
                raise PackError(f"{name}: this data file cannot be read: {error.strerror}") from None
        saved.append(name)
    return saved


def _checked(trees: WorkingTrees, name: str) -> Path:
    path = trees.file(name)
    normal = unicodedata.normalize("NFC", name)
    if not name.isprintable() or "\\" in name or name != normal or len(name.encode()) > LONGEST_NAME:
        raise PackError(
            f"{name!a}: a data file's name must be at most {LONGEST_NAME} bytes of printable UTF-8 in "
            "composed form, without backslashes\n  What to do: rename the file"
        )
    if os.path.isabs(name) or ".." in Path(name).parts:
        raise PackError(f"{name}: a data file must lie in the project, below {trees.root}")
    if not path.exists():
        raise PackError(
            f"{name}: there is no such data file below {trees.root}\n"
            "  What to do: put it there, or remove it from the plan's [data], or from --data"
        )
    if not trees.owns(path):
        raise PackError(
            f"{name}: this data file is a link that leads out of the project, to {path.resolve()}\n"
            "  What to do: copy the file into the project"
        )
    if name.endswith("/") and (not path.is_dir() or holds_data(path)):
        raise PackError(
            f"{name}: only the name of an empty folder ends in a slash here\n"
            f"  What to do: name the files that are in it, or --data '{glob.escape(name)}', which stands for "
            "them all"
        )
    if not path.is_file() and not name.endswith("/"):
        raise PackError(
            f"{name}: a data file must be a plain file, and this is "
            f"{f'a folder, whose files are {name}/**' if path.is_dir() else 'none'}"
        )
    return path


def _is_source(exporter: HermeticExporter, name: str) -> bool:
    module = name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    return module in exporter.names("intern") and name == source_member(exporter, module)


def _taken_by(exporter: HermeticExporter, name: str) -> str:
    """Describe another member with this name, or with the name of a parent folder; "" if there is none."""
    first, *_ = parts = name.split("/")
    if first in (".data", MANIFEST_PACKAGE):
        return f"{first} is the archive's own folder"
    if name.endswith(".py"):
        module = name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        if module in exporter.names("mock"):
            return f"{module} is mocked"
        if module in exporter.names("extern"):
            return f"{module} is taken from the server"
    for end in range(1, len(parts)):
        module = ".".join(parts[:end])
        if module in exporter.names("extern"):
            return f"{module} is taken from the server"
        node = exporter.dependency_graph.nodes.get(module, {})
        if module in exporter.names("intern", "mock") and not node.get("is_package", False):
            return f"{module} is a module, and its name cannot be a folder's too"
    return ""
