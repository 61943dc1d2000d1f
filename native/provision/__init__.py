"""Makes private copies of stock shared libraries, one set per interpreter.

Each interpreter ("slot") gets its own patched copy of every object that uses the Python C API; all other
objects stay shared. Copies are in a cache (``$INTERPOOL_CACHE``, else ``$XDG_CACHE_HOME/interpool``, else
``~/.cache/interpool``) and are made when first needed. If the cache is not writable, copies are in memory.
Copies that were not used for long are removed.

All functions raise ``interpool.native.errors.ProvisioningError``, which names the file and, if a tool failed,
contains its output.

May be imported by the pool, the diagnostics and everything above native, only in the host program.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from interpool.native.provision import sweeping
from interpool.native.provision.copies import Copies
from interpool.native.provision.environment import (
    SYMBOL_PREFIX,
    Environment,
    current_environment,
    interposer_path,
    libpython_path,
    standby_path,
    torch_libraries,
)

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "SYMBOL_PREFIX",
    "host_copy",
    "interposer_path",
    "keep_for",
    "libpython_copy",
    "libpython_path",
    "notes_folder",
    "present_copies",
    "private_copy",
    "require_files",
    "standby_path",
    "sweep_later",
    "torch_libraries",
]


@functools.lru_cache(maxsize=8)
def _copies(env: Environment) -> Copies:
    return Copies(env)


def present_copies() -> Copies:
    """Return the copies of the current environment; they stay valid if the environment changes later."""
    return _copies(current_environment())


def private_copy(path: str, slot: int) -> list[str]:
    """Return the files to load, in order, if slot ``slot`` (0 to 9999) loads ``path``.

    Load each with ``RTLD_NOW | RTLD_LOCAL``: first the slot's copies of the private objects that ``path``
    needs, beginning with libpython, then its own copy. If ``path`` need not be private, the result is
    ``path`` alone.

    Args:
        path: a library's path, or its name for the dynamic linker.
        slot: the slot's number.

    Raises:
        ProvisioningError: a file cannot be read, or a copy cannot be made.
    """
    return present_copies().private_copy(path, slot)


def libpython_copy(slot: int) -> str:
    """Return the slot's copy of libpython, whose ``Py*`` names have the prefix ``SYMBOL_PREFIX``.

    Raises:
        ProvisioningError: libpython cannot be read, or the copy cannot be made.
    """
    return present_copies().libpython_copy(slot)


def require_files() -> None:
    """Check that other processes can use the copies.

    Raises:
        ProvisioningError: copies are in memory, for this process only.
    """
    present_copies().require_files()


def keep_for(file: Path) -> None:
    """Keep the copies while a file names them: ``sweep_later`` cannot see the programs that use the file.

    Raises:
        ProvisioningError: as for ``sweeping.keep_for``.
    """
    sweeping.keep_for(current_environment().directory, file)


def sweep_later() -> None:
    """Remove cache entries that were not used for long; starts in a minute, in another thread."""
    sweeping.sweep_later()


def notes_folder() -> str:
    """Return the folder of notes about imports of torch (``native/inside/import_notes.py``)."""
    return str(current_environment().directory / "imports")


def host_copy(path: str) -> str:
    """Return a copy of ``path`` for the host's own Python, with the interposer before libtorch.

    The copy keeps SONAME and ``Py*`` names. If it is loaded before the stock file, all dependent libraries
    use it instead.

    Raises:
        ProvisioningError: ``path`` cannot be read, or the copy cannot be made.
    """
    return present_copies().host_copy(path)
