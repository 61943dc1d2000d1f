"""Finds libraries as the system's loader does if no search path of the object leads to them."""

from __future__ import annotations

import contextlib
import functools
import os
import struct
from pathlib import Path

_CACHE = Path("/etc/ld.so.cache")
_MAGIC = b"glibc-ld.so.cache1.1"
_HEADER_SIZE = 48
_ENTRY = struct.Struct("<iIIIQ")


def system_library(name: str) -> str | None:
    """Return the file for ``name`` in LD_LIBRARY_PATH, ld.so.cache or the default directories."""
    for directory in os.environ.get("LD_LIBRARY_PATH", "").split(":"):
        candidate = os.path.join(directory, name)
        if directory and _is_64_bit(candidate):
            return candidate
    for candidate in _ld_so_cache().get(name, ()):
        if _is_64_bit(candidate):
            return candidate
    for directory in ("/lib64", "/usr/lib64", "/lib", "/usr/lib"):
        candidate = os.path.join(directory, name)
        if _is_64_bit(candidate):
            return candidate
    return None


def _is_64_bit(path: str) -> bool:
    """Return whether ``path`` is a 64-bit ELF file (multilib systems have both)."""
    with contextlib.suppress(OSError), open(path, "rb") as file:
        return file.read(5) == b"\x7fELF\x02"
    return False


@functools.cache
def _ld_so_cache() -> dict[str, list[str]]:
    """Return names and files in ld.so.cache; empty if glibc 2.32+ could not read it."""
    found: dict[str, list[str]] = {}
    try:
        data = _CACHE.read_bytes()
    except OSError:
        return found
    # An older format may come first in the file; offsets count from this format's start.
    data = data[max(data.find(_MAGIC), 0) :]
    if not data.startswith(_MAGIC):
        return found
    with contextlib.suppress(struct.error, ValueError):
        (count,) = struct.unpack_from("<I", data, len(_MAGIC))
        for i in range(count):
            _, key, value, _, _ = _ENTRY.unpack_from(data, _HEADER_SIZE + i * _ENTRY.size)
            name, path = (os.fsdecode(data[at : data.index(b"\0", at)]) for at in (key, value))
            found.setdefault(name, []).append(path)
    return found
