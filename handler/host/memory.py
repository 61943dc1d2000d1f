"""How much memory is left for this process: of the machine's, its control group's, or its own limit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_PROC = Path("/proc")
_CGROUPS = Path("/sys/fs/cgroup")
_NO_LIMIT = 1 << 62  # what version 1 says is a little less than 1 << 63


class Room(NamedTuple):
    """What is left of a limit, in bytes."""

    free: int
    most: int

    @property
    def part(self) -> float:
        """What is left, 0 to 1."""
        return min(1.0, self.free / self.most)


def rooms(own_limit: int | None = None, proc: Path = _PROC, cgroups: Path = _CGROUPS) -> list[Room]:
    """What is left of each limit that there is.

    The machine's (``MemAvailable``), that of every control group above this process
    that has one (``memory.max``, less ``memory.current`` without the file pages
    that the kernel would give back first; in version 1 these have other names), and ``own_limit``
    in bytes, of what this process has that is no file's. None where nothing can be read.
    """
    return [*_own(proc, own_limit), *_machine(proc), *_groups(proc, cgroups)]


def free_part(own_limit: int | None = None, proc: Path = _PROC, cgroups: Path = _CGROUPS) -> float:
    """The part, 0 to 1, of the memory that this process may use and that is still to be had."""
    return min((room.part for room in rooms(own_limit, proc, cgroups)), default=1.0)


def data_size(proc: Path = _PROC) -> int:
    """The bytes of this process that ``RLIMIT_DATA`` is a limit of; 0 where they cannot be read."""
    return _fields(proc / "self" / "status").get("VmData:", 0) * 1024


def _own(proc: Path, limit: int | None) -> Iterator[Room]:
    if limit is not None:
        sizes = _fields(proc / "self" / "status")
        used = (sizes.get("RssAnon:", 0) + sizes.get("RssShmem:", 0)) * 1024
        yield Room(max(0, limit - used), limit)


def _machine(proc: Path) -> Iterator[Room]:
    sizes = _fields(proc / "meminfo")
    if sizes.get("MemTotal:") and "MemAvailable:" in sizes:
        yield Room(sizes["MemAvailable:"] * 1024, sizes["MemTotal:"] * 1024)


class _Files(NamedTuple):
    """Where a version of control groups says what."""

    most: str
    used: str
    cache: str  # in memory.stat: what the kernel would give back first


_VERSION_1 = _Files("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
_VERSION_2 = _Files("memory.max", "memory.current", "inactive_file")


def _groups(proc: Path, cgroups: Path) -> Iterator[Room]:
    try:
        lines = (proc / "self" / "cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, name = line.split(":", 2)
        if not controllers:
            root, files = cgroups, _VERSION_2
        elif "memory" in controllers.split(","):
            root, files = cgroups / "memory", _VERSION_1
        else:
            continue
        group = root / name.removeprefix("/")
        for directory in (group, *group.parents):
            if directory.is_relative_to(root):
                yield from _group(directory, files)


def _group(directory: Path, files: _Files) -> Iterator[Room]:
    try:
        most = int((directory / files.most).read_text())  # "max" where there is no limit
        used = int((directory / files.used).read_text())
    except (OSError, ValueError):
        return
    cache = _fields(directory / "memory.stat").get(files.cache, 0)
    if 0 < most < _NO_LIMIT:
        yield Room(max(0, most - max(0, used - cache)), most)


def _fields(file: Path) -> dict[str, int]:
    """Lines of a name and a number."""
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return {}
    words = (line.split() for line in lines)
    return {word[0]: int(word[1]) for word in words if len(word) > 1 and word[1].isdecimal()}
