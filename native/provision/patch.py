"""Makes the patched template of one private object."""

from __future__ import annotations

import functools
import os
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from interpool.native.errors import ProvisioningError
from interpool.native.provision.elf import (
    STB_GNU_UNIQUE,
    STB_WEAK,
    SharedObject,
)
from interpool.native.provision.environment import (
    INTERPOSER_SONAME,
    SYMBOL_PREFIX,
    Environment,
    patchelf_path,
)
from interpool.native.provision.records import MARKER
from interpool.native.provision.store import file_in_memory, locked, new_file

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from interpool.native.provision.analysis import Facts


@dataclass(frozen=True)
class Change:
    """The changes of one object.

    Attributes:
        soname: its new SONAME.
        libpython: the SONAME of libpython's template; None for libpython itself.
        exchange: needed names of private objects, and their templates' SONAMEs.
        interposer: whether it needs the interposer, before all others.
        rename: whether Py* and interposed names get the prefix; False for the host's own copy.
    """

    soname: str
    libpython: str | None
    exchange: dict[str, str]
    interposer: bool
    rename: bool = True


def make_template(source: str, target: Path, facts: Facts, change: Change, env: Environment) -> list[int]:
    """Write the patched template of ``source`` to ``target``.

    Args:
        source: path of the original.
        target: path of the template.
        facts: the properties of the original.
        change: the changes.
        env: the environment of the copies.

    Returns:
        File offsets, in bytes, of every slot marker in the template.

    Raises:
        ProvisioningError: patchelf failed; names the file and repeats its output.
    """
    command = [patchelf_path(), "--output", str(target), "--set-soname", change.soname]
    for old, new in change.exchange.items():
        command += ["--replace-needed", old, new]
    first = [INTERPOSER_SONAME] if change.interposer else []
    if change.libpython:
        for old in facts.libpython:
            command += ["--replace-needed", old, change.libpython]
        if not facts.libpython:
            command += ["--add-needed", change.libpython]
        first.append(change.libpython)
    if change.interposer:
        command += ["--add-needed", INTERPOSER_SONAME]
    if facts.search:
        command += ["--force-rpath", "--set-rpath", env.rpath(facts.search)]
    if change.rename:
        command += ["--rename-dynamic-symbols", str(_name_map(env, of_libpython=change.libpython is None))]
    command.append(source)
    _patchelf(command, f"make a private copy of {source}")
    os.chmod(target, 0o600)
    prefix = SYMBOL_PREFIX.encode() if change.rename else b""
    interposed = {prefix + name for name in env.interposed}
    with SharedObject(target, writable=True) as library:
        library.order_needed(first)
        of_libpython = _renamed(env) if change.rename and change.libpython else frozenset()
        for symbol in library.symbols():
            if change.interposer and symbol.defined and symbol.name in interposed:
                # The library's own definition would precede the interposer's.
                library.undefine(symbol)
            elif symbol.defined and symbol.name in of_libpython:
                # The library contains parts of a Python: the running Python's definitions precede them in any
                # process.
                library.undefine(symbol)
            elif symbol.binding == STB_GNU_UNIQUE:
                # Unique symbols are merged process-wide, regardless of scope.
                library.set_binding(symbol, STB_WEAK)
        return library.string_offsets(MARKER.encode())


def set_search_path(path: Path, folders: Sequence[str], *, transitive: bool) -> None:
    """Change the search path of the library at ``path``.

    Args:
        path: changed in place.
        folders: may contain ``$ORIGIN``; an empty sequence removes the search path.
        transitive: whether it applies to the library's dependencies, too (DT_RPATH).

    Raises:
        ProvisioningError: patchelf failed; names the file and repeats its output.
    """
    command = [patchelf_path(), *(["--force-rpath"] if transitive else [])]
    command += ["--set-rpath", ":".join(folders)] if folders else ["--remove-rpath"]
    _patchelf([*command, str(path)], f"change where {path} looks for libraries")


def _patchelf(command: Sequence[str], purpose: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = done.stderr.strip() or done.stdout.strip()
        raise ProvisioningError(f"patchelf could not {purpose} (status {done.returncode}): {said}")


def _renamed(env: Environment) -> frozenset[bytes]:
    """Return libpython's names as renamed in private copies."""
    return frozenset(SYMBOL_PREFIX.encode() + name for name in _shared_names(env))


def _shared_names(env: Environment) -> frozenset[bytes]:
    """Return libpython's names that have the same meaning in an extension.

    ``PyInit_`` names do not: ``package._io`` has the same init function name as the standard library's.
    """
    return frozenset(name for name in env.python_names if not name.startswith(b"PyInit_"))


def _name_map(env: Environment, of_libpython: bool) -> Path:
    """Return a file of old and new names for patchelf, made once per environment."""
    path = env.directory / ("names-libpython.map" if of_libpython else "names.map")
    if path.exists():
        return path
    # Only the interposer defines the prefixed names. Without the prefix, a libtorch in the program's global
    # scope would come first.
    of_python = env.python_names if of_libpython else _shared_names(env)
    names = sorted(name.decode() for name in of_python | env.interposed)
    text = "".join(f"{name} {SYMBOL_PREFIX}{name}\n" for name in names)
    try:
        with locked(env.directory, "names"), new_file(path) as draft:
            draft.write_text(text)
    except ProvisioningError:
        return _in_memory(path.name, text)
    return path


@functools.lru_cache(maxsize=8)
def _in_memory(name: str, text: str) -> Path:
    path = file_in_memory(name)
    path.write_text(text)
    return path
