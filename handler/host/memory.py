"""Finds how much memory is left for this process: of the machine's, its control group's, or its own limit."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_PROC = Path("/proc")
_CGROUPS = Path("/sys/fs/cgroup")
_NO_LIMIT = 1 << 62  # version 1 reports a little less than 1 << 63 if there is no limit


class Room(NamedTuple):
    """What is left of a limit."""

    free: int  # bytes that are left
    most: int  # the limit, in bytes

    @property
    def part(self) -> float:
        """The part of the limit that is left, 0 to 1."""
        return min(1.0, self.free / self.most)


def rooms(own_limit: int | None = None, proc: Path = _PROC, cgroups: Path = _CGROUPS) -> list[Room]:
    """What is left of each limit that applies to this process. A limit that cannot be read is left out.

    The limits are:

    - ``own_limit``, for the memory of this process that belongs to no file.
    - the machine's memory (``MemAvailable``).
    - the limit of every control group above this process that has one: ``memory.max``, less
      ``memory.current`` without the file pages that the kernel would give back first. In version 1 these
      have other names.

    Args:
        own_limit: the process's own limit in bytes; None: it has none.
        proc: where the kernel's files about processes are.
        cgroups: where the kernel's files about control groups are.
    """
    return [*_own(proc, own_limit), *_machine(proc), *_groups(proc, cgroups)]


def free_part(own_limit: int | None = None, proc: Path = _PROC, cgroups: Path = _CGROUPS) -> float:
    """The part, 0 to 1, that is left of the tightest limit; 1 if no limit can be read.

    Args:
        own_limit: the process's own limit in bytes; None: it has none.
        proc: where the kernel's files about processes are.
        cgroups: where the kernel's files about control groups are.
    """
    return min((room.part for room in rooms(own_limit, proc, cgroups)), default=1.0)


def data_size(proc: Path = _PROC) -> int:
    """The bytes of this process that count for ``RLIMIT_DATA``; 0 if they cannot be read."""
    return _number(_read(f"{proc}/self/status"), "VmData:") * 1024


def _own(proc: Path, limit: int | None) -> Iterator[Room]:
    if limit is not None:
        sizes = _read(f"{proc}/self/status")
        used = (_number(sizes, "RssAnon:") + _number(sizes, "RssShmem:")) * 1024
        yield Room(max(0, limit - used), limit)


def _machine(proc: Path) -> Iterator[Room]:
    sizes = _read(f"{proc}/meminfo")
    most = _number(sizes, "MemTotal:")
    if most and "MemAvailable:" in sizes:
        yield Room(_number(sizes, "MemAvailable:") * 1024, most * 1024)


class _Files(NamedTuple):
    """The names of the files in which a version of control groups gives its numbers."""

    most: str
    used: str
    cache: str  # the name in memory.stat of the file pages that the kernel would give back first


_VERSION_1 = _Files("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
_VERSION_2 = _Files("memory.max", "memory.current", "inactive_file")


def _groups(proc: Path, cgroups: Path) -> Iterator[Room]:
    for directory, files in _directories(_read(f"{proc}/self/cgroup"), cgroups):
        yield from _group(directory, files)


@functools.lru_cache(maxsize=4)
def _directories(groups: str, cgroups: Path) -> list[tuple[str, _Files]]:
    """The directories of the groups that a process is in, and of all groups above them."""
    found = []
    for line in groups.splitlines():
        _, controllers, name = line.split(":", 2)
        if not controllers:
            root, files = cgroups, _VERSION_2
        elif "memory" in controllers.split(","):
            root, files = cgroups / "memory", _VERSION_1
        else:
            continue
        group = root / name.removeprefix("/")
        found += [(str(each), files) for each in (group, *group.parents) if each.is_relative_to(root)]
    return found


def _group(directory: str, files: _Files) -> Iterator[Room]:
    try:
        most = int(_read(f"{directory}/{files.most}"))  # "max" if there is no limit
        if not 0 < most < _NO_LIMIT:
            return
        used = int(_read(f"{directory}/{files.used}"))
    except ValueError:
        return
    cache = _number(_read(f"{directory}/memory.stat"), files.cache)
    yield Room(max(0, most - max(0, used - cache)), most)


def _read(file: str) -> str:
    """The text of a kernel's file; "" if it cannot be read. By descriptor, as 300 are read in a second."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        parts = []
        while part := os.read(descriptor, 1 << 16):
            parts.append(part)
        return b"".join(parts).decode(errors="replace")
    except OSError:
        return ""
    finally:
        os.close(descriptor)


def _number(text: str, name: str) -> int:
    """The number after a name at the beginning of a line; 0 if there is no such line."""
    found = _line_of(name).search(text)
    return int(found[1]) if found else 0


@functools.cache
def _line_of(name: str) -> re.Pattern[str]:
    return re.compile(rf"^{re.escape(name)}\s+(\d+)", re.MULTILINE)
