"""Finds how much memory is left for this process: of the machine's, its control group's, or its own limit."""

from __future__ import annotations

import contextlib
import functools
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

    Args: see ``rooms``.
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


# In a control group's directory, by version: the file of its limit, and the file of what is used. And the
# name in memory.stat of the file pages that the kernel would give back first.
_VERSION_1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
_VERSION_2 = ("memory.max", "memory.current", "inactive_file")


def _groups(proc: Path, cgroups: Path) -> Iterator[Room]:
    for directory, (limit, usage, cache) in _directories(_read(f"{proc}/self/cgroup"), cgroups):
        with contextlib.suppress(ValueError):  # "max" if there is no limit
            most, used = int(_read(f"{directory}/{limit}")), int(_read(f"{directory}/{usage}"))
            if 0 < most < _NO_LIMIT:
                used -= _number(_read(f"{directory}/memory.stat"), cache)
                yield Room(max(0, most - max(0, used)), most)


@functools.lru_cache(maxsize=4)
def _directories(groups: str, cgroups: Path) -> list[tuple[str, tuple[str, str, str]]]:
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


def _read(file: str) -> str:
    """The text of a kernel's file; "" if it cannot be read."""
    try:
        with open(file, "rb", buffering=0) as opened:
            return opened.read().decode(errors="replace")
    except OSError:
        return ""


def _number(text: str, name: str) -> int:
    """The number after a name at the beginning of a line; 0 if there is no such line."""
    found = re.search(rf"^{name}\s+(\d+)", text, re.MULTILINE)
    return int(found[1]) if found else 0
