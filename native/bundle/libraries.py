"""Copies a bundle's shared libraries and makes their search paths relative.

The bundle includes libraries of the build system, such as libffi. It excludes only libraries that every
system with a C++ program has. These are the C library, which must match the kernel and configuration, the C++
library, which the program has loaded already, and drivers.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from interpool.native.errors import ProvisioningError
from interpool.native.provision.analysis import search_folders
from interpool.native.provision.elf import DT_NEEDED, DT_RPATH, DT_RUNPATH, SharedObject
from interpool.native.provision.patch import set_search_path
from interpool.native.provision.system_libraries import system_library

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_OF_EVERY_SYSTEM = re.compile(
    r"(ld-linux[\w-]*|ld64|libBrokenLocale|libanl|libc|libdl|libm|libmvec|libnss_\w+|libpthread|libresolv|librt"
    r"|libthread_db|libutil|libstdc\+\+|libgcc_s|libcuda|libnvidia-[\w-]+|libpython3[\w.]*)\.so[.\d]*"
)
_LIBRARY = re.compile(r".+\.so[.\d]*")


def libraries(root: Path) -> Iterator[Path]:
    """Yield all shared libraries below ``root``, by their names and first bytes, in order."""
    for path in _elf_files(root):
        if _LIBRARY.fullmatch(path.name):
            yield path


def bring_needed(root: Path, sources: Mapping[Path, Path], beside: Path, loaded: Path) -> dict[str, Path]:
    """Make all dependencies of the libraries and programs below ``root`` available below ``root``.

    Args:
        root: of the bundle.
        sources: the original of each file in it.
        beside: the folder for libraries of the system.
        loaded: the folder of libraries that every process has loaded first, libtorch.

    Returns:
        The libraries copied from the system: each original path, by name.

    Raises:
        ProvisioningError: patchelf failed.
    """
    origins = dict(sources)
    left = list(_elf_files(root))
    brought: dict[str, Path] = {}
    while left:
        path = left.pop()
        try:
            with SharedObject(path) as library:
                needed = library.strings_of(DT_NEEDED)
                inherited = library.strings_of(DT_RPATH)
                entries = library.strings_of(DT_RUNPATH) or inherited
        except ProvisioningError:
            continue  # no dynamic section, or incomplete: the loader would not accept it
        kept = [entry for each in entries for entry in each.split(":") if _is_within(path, entry, root)]
        searched = [*search_folders(str(path), kept), str(loaded)]
        from_beside = False
        for name in needed:
            if _OF_EVERY_SYSTEM.fullmatch(name) or any((Path(each) / name).exists() for each in searched):
                continue
            final = beside / name
            if not final.exists():
                found = _found(name, origins.get(path, path), entries)
                if found is None:
                    continue  # missing here, too: for hardware that this machine lacks
                shutil.copyfile(os.path.realpath(found), final)
                origins[final] = Path(found)
                brought[name] = Path(found)
                left.append(final)
            from_beside = True
        if from_beside:
            kept.append(_relative(path, beside))
        search_path = list(dict.fromkeys(kept))
        if ":".join(search_path) != ":".join(entries):
            set_search_path(path, search_path, transitive=bool(inherited))
    return dict(sorted(brought.items()))


def _elf_files(root: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(root):
        folders.sort()
        for name in sorted(names):
            path = Path(folder) / name
            if (_LIBRARY.fullmatch(name) or path.stat().st_mode & stat.S_IXUSR) and _is_elf(path):
                yield path


def _is_elf(path: Path) -> bool:
    with open(path, "rb") as file:
        return file.read(5) == b"\x7fELF\x02"


def _is_within(path: Path, entry: str, root: Path) -> bool:
    if not entry.startswith(("$ORIGIN", "${ORIGIN}")):
        return False
    return all(Path(each).is_relative_to(root) for each in search_folders(str(path), [entry]))


def _found(name: str, source: Path, entries: list[str]) -> str | None:
    """Return the path at which the original finds the library."""
    for folder in search_folders(str(source), entries):
        if os.path.isfile(candidate := os.path.join(folder, name)):
            return candidate
    return system_library(name)


def _relative(path: Path, folder: Path) -> str:
    way = os.path.relpath(folder, path.parent)
    return "$ORIGIN" if way == "." else f"$ORIGIN/{way}"
