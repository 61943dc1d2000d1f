"""Private copies of stock shared libraries, one set per interpreter.

Every object that uses the Python C API is given to each interpreter ("slot") as
a patched copy of its own; everything else stays one copy per process. Copies
live in a cache (``$INTERPOOL_CACHE``, else ``$XDG_CACHE_HOME/interpool``, else
``~/.cache/interpool``) and are made on first need; where that cannot be written, in memory.
What nobody has used for long is removed.

All functions raise ``interpool.native.errors.ProvisioningError``, which names
the file and, where a tool failed, repeats its output.

May be imported by the pool, the diagnostics and what lies above native, in the host program only.
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
    """Those of the environment as it is now, for who must go on with them whatever becomes of it."""
    return _copies(current_environment())


def private_copy(path: str, slot: int) -> list[str]:
    """The files to load, in order, where slot ``slot`` (0 to 9999) wants ``path``.

    Load each with ``RTLD_NOW | RTLD_LOCAL``: first the slot's copies of the private
    objects that ``path`` needs, libpython foremost, and its own copy last. A ``path``
    that need not be private comes back alone and unchanged.
    """
    return present_copies().private_copy(path, slot)


def libpython_copy(slot: int) -> str:
    """The slot's copy of libpython, with the ``Py*`` names under ``SYMBOL_PREFIX``."""
    return present_copies().libpython_copy(slot)


def require_files() -> None:
    """Raise ProvisioningError if copies are in memory, for this process only."""
    present_copies().require_files()


def keep_for(file: Path) -> None:
    """Keep the copies for as long as a file names them: for programs that ``sweep_later`` cannot see."""
    sweeping.keep_for(current_environment().directory, file)


def sweep_later() -> None:
    """Remove what no process has used for long, in a minute, beside what this process does."""
    sweeping.sweep_later(current_environment().holder)


def notes_folder() -> str:
    """Where interpreters keep what an import of torch told (``native/inside/import_notes.py``)."""
    return str(current_environment().directory / "imports")


def host_copy(path: str) -> str:
    """A copy of ``path`` for the host's own Python, with the interposer before libtorch.

    SONAME and ``Py*`` names stay as they are. Loaded before the stock file, it is
    found in its place by everything that needs it.
    """
    return present_copies().host_copy(path)
