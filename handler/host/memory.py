"""How much memory is left for this process: the machine's, or its control group's if that is less."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")


def free_part(proc: Path = Path("/proc"), cgroups: Path = _CGROUPS) -> float:
    """The part, 0 to 1, of the memory that this process may use and that is still to be had.

    The least of the machine's (``MemAvailable``) and of every control group's above this process
    that has a limit (version 2: ``memory.max``, less ``memory.current`` without the file pages
    that the kernel would give back first). 1 where nothing can be read.
    """
    return min(1.0, *_machine(proc), *_groups(proc, cgroups))


def _machine(proc: Path) -> Iterator[float]:
    sizes = _fields(proc / "meminfo")
    if sizes.get("MemTotal:") and "MemAvailable:" in sizes:
        yield sizes["MemAvailable:"] / sizes["MemTotal:"]
    yield 1.0


def _groups(proc: Path, cgroups: Path) -> Iterator[float]:
    try:
        lines = (proc / "self" / "cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        if line.startswith("0::/"):
            group = cgroups / line.removeprefix("0::/")
            for directory in (group, *group.parents):
                if directory.is_relative_to(cgroups):
                    yield from _group(directory)


def _group(directory: Path) -> Iterator[float]:
    try:
        most = int((directory / "memory.max").read_text())  # "max" where there is no limit
        used = int((directory / "memory.current").read_text())
    except (OSError, ValueError):
        return
    cache = _fields(directory / "memory.stat").get("inactive_file", 0)
    if most > 0:
        yield max(0.0, 1.0 - max(0, used - cache) / most)


def _fields(file: Path) -> dict[str, int]:
    """Lines of a name and a number."""
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return {}
    words = (line.split() for line in lines)
    return {word[0]: int(word[1]) for word in words if len(word) > 1 and word[1].isdecimal()}
