"""Determines whether a shared object must be private, and which private objects it needs."""

from __future__ import annotations

import os
import re
import sysconfig
from dataclasses import dataclass
from typing import TYPE_CHECKING

from interpool.native.errors import ProvisioningError
from interpool.native.provision.elf import (
    DT_NEEDED,
    DT_RPATH,
    DT_RUNPATH,
    SharedObject,
)
from interpool.native.provision.unshared import is_of_a_wheel

if TYPE_CHECKING:
    from interpool.native.provision.environment import Environment

TORCH_PYTHON = "libtorch_python.so"
# libpython3.11.so.1.0, and libpython3.so for the stable ABI
_LIBPYTHON = re.compile(r"libpython3(?:\.(\w+))?\.so(?:\.\d+)*")


@dataclass(frozen=True)
class Facts:
    """Properties of an object's own file, without its dependencies.

    Attributes:
        uses_python: imports a name of libpython, or exports ``PyInit_*``.
        interposed: imports or defines a name that the interposer defines.
        needed: DT_NEEDED names, in order.
        search: directories of its RPATH or RUNPATH, ``$ORIGIN`` expanded.
        found: paths of needed names found in ``search``, torch/lib, or the folder of its wheel.
        libpython: the needed names that mean libpython.
    """

    uses_python: bool
    interposed: bool
    needed: list[str]
    search: list[str]
    found: dict[str, str]
    libpython: list[str]


def means_libpython(name: str) -> bool:
    """Return whether a file name is that of the running Python's libpython.

    Raises:
        ProvisioningError: it belongs to another Python.
    """
    found = _LIBPYTHON.fullmatch(name)
    if found is None:
        return False
    running = str(sysconfig.get_config_var("LDVERSION"))
    if found[1] not in (None, running.partition(".")[2]):
        raise ProvisioningError(f"{name} is of another Python than this one ({running})")
    return True


def examine(path: str, env: Environment) -> Facts:
    """Read the object at ``path``.

    Args:
        path: of the object.
        env: the environment of the copies.

    Raises:
        ProvisioningError: not a readable ELF shared object, or bound to another Python.
    """
    with SharedObject(path) as library:
        needed = library.strings_of(DT_NEEDED)
        # The loader ignores DT_RPATH if there is a DT_RUNPATH.
        paths = library.strings_of(DT_RUNPATH) or library.strings_of(DT_RPATH)
        uses_python = library.mentions(b"Py") and _uses_python(library, env.python_names)
        interposed = bool(env.interposed) and any(
            symbol.name in env.interposed for symbol in library.symbols()
        )
    search = search_folders(path, paths)
    # In some wheels only the extension modules have the search path: their DT_RPATH applies to dependencies,
    # too.
    elsewhere = [os.path.dirname(path)] if is_of_a_wheel(path) else []
    elsewhere += [str(env.torch_libraries)] if env.torch_libraries else []
    found: dict[str, str] = {}
    try:
        libpython = [name for name in needed if means_libpython(name)]
    except ProvisioningError as error:
        raise ProvisioningError(
            f"{path} cannot be loaded: {error}; install a build of it for this Python"
        ) from error
    for name in needed:
        if name in libpython:
            continue
        for directory in [*search, *elsewhere]:
            candidate = os.path.join(directory, name)
            if os.path.isfile(candidate):
                found[name] = candidate
                if directory not in search:
                    search.append(directory)
                break
    return Facts(uses_python, interposed, needed, search, found, libpython)


def _uses_python(library: SharedObject, names: frozenset[bytes]) -> bool:
    return any(
        symbol.name.startswith(b"PyInit_") if symbol.defined else symbol.name in names
        for symbol in library.symbols()
    )


def search_folders(path: str, entries: list[str]) -> list[str]:
    """Return search directories in order, ``$ORIGIN`` expanded.

    The loader expands ``$ORIGIN`` from the name by which a file was opened. Package managers that link files
    (uv) may keep the libraries beside the link or its target, so both are searched.

    Args:
        path: of the object.
        entries: its RPATH or RUNPATH entries, with colons.
    """
    origins = dict.fromkeys((os.path.dirname(os.path.abspath(path)), os.path.dirname(os.path.realpath(path))))
    found: dict[str, None] = {}
    for entry in ":".join(entries).split(":"):
        if not entry:
            continue
        for origin in origins:
            expanded = entry.replace("${ORIGIN}", origin).replace("$ORIGIN", origin)
            found[os.path.normpath(expanded)] = None
    return list(found)
