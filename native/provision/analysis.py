"""Whether a shared object must be private, and which private objects it needs."""

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
# libpython3.11.so.1.0, and libpython3.so, which stands before it for the stable ABI.
_LIBPYTHON = re.compile(r"libpython3(?:\.(\w+))?\.so(?:\.\d+)*")


@dataclass(frozen=True)
class Facts:
    """What an object's own file says, before its dependencies were judged.

    Attributes:
        uses_python: imports a name of libpython's, or exports ``PyInit_*``.
        interposed: imports or defines a name that the interposer defines.
        needed: DT_NEEDED names, in order.
        search: directories of its RPATH or RUNPATH, ``$ORIGIN`` expanded.
        found: the needed names that ``search`` (or torch/lib, or its wheel's folder) answers, with paths.
        libpython: the needed names that mean libpython.
    """

    uses_python: bool
    interposed: bool
    needed: list[str]
    search: list[str]
    found: dict[str, str]
    libpython: list[str]


def means_libpython(name: str) -> bool:
    """Whether a library of that file name is the running Python's own.

    Raises:
        ProvisioningError: it is another Python's.
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

    Raises:
        ProvisioningError: not a readable ELF shared object, or bound to another Python.
    """
    with SharedObject(path) as library:
        needed = library.strings_of(DT_NEEDED)
        # The loader ignores DT_RPATH where there is a DT_RUNPATH.
        paths = library.strings_of(DT_RUNPATH) or library.strings_of(DT_RPATH)
        uses_python = library.mentions(b"Py") and _uses_python(library, env.python_names)
        interposed = bool(env.interposed) and any(
            symbol.name in env.interposed for symbol in library.symbols()
        )
    search = search_folders(path, paths)
    # Some wheels tell only their extension modules where these lie: DT_RPATH holds for all that is needed.
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
    """Search directories in order, ``$ORIGIN`` expanded.

    The loader takes ``$ORIGIN`` from the name that a file was opened by; a
    package manager that links files into place (uv) may keep the libraries
    beside the link or beside its target, so both are searched.
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
