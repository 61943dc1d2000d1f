"""Where the system's loader finds a library that no search path of its own leads to."""

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
    """The file that ``name`` means by LD_LIBRARY_PATH, ld.so.cache or the default directories."""
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
    """Whether ``path`` is an ELF file of this word size (multilib systems keep both)."""
    with contextlib.suppress(OSError), open(path, "rb") as file:
        return file.read(5) == b"\x7fELF\x02"
    return False


@functools.cache
def _ld_so_cache() -> dict[str, list[str]]:
    """Names and files of ld.so.cache; empty where there is none that glibc 2.32+ would read."""
    found: dict[str, list[str]] = {}
    try:
        data = _CACHE.read_bytes()
    except OSError:
        return found
    # The format may follow an older one in the same file; offsets count from its own start.
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
