"""What this process has mapped and opened, from /proc/self: what is new since a test began."""

from __future__ import annotations

import contextlib
import re
import stat
from dataclasses import dataclass, field
from pathlib import Path

_HEAD = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) (\S+) \S+ (\S+) (\d+) *(.*)$")
_FIELD = re.compile(r"^(\w+): +(\d+) kB$")


@dataclass
class Mapping:
    """One line of the map.

    Attributes:
        name: the file, as the kernel names it.
        file: its device and inode.
        size: in bytes.
        kib: ``Pss``, ``Private_Dirty`` and so on, KiB.
    """

    name: str
    file: tuple[str, str]
    size: int
    permissions: str
    kib: dict[str, int] = field(default_factory=dict)


def mappings() -> list[Mapping]:
    """All of them."""
    found: list[Mapping] = []
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if head := _HEAD.match(line):
            start, end, permissions, device, inode, name = head.groups()
            found.append(Mapping(name, (device, inode), int(end, 16) - int(start, 16), permissions))
        elif value := _FIELD.match(line):
            found[-1].kib[value[1]] = int(value[2])
    return found


class Snapshots:
    """Writable mappings of unnamed files that are new since this was made: what archives are mapped from."""

    def __init__(self) -> None:
        # With the name: a file system gives the number of a file that is gone to another.
        self._before = {(mapping.file, mapping.name) for mapping in mappings()}

    def __call__(self, at_least: int) -> list[Mapping]:
        return [
            mapping
            for mapping in mappings()
            if mapping.name.endswith("(deleted)")
            and "w" in mapping.permissions
            and mapping.size >= at_least
            and (mapping.file, mapping.name) not in self._before
        ]


def open_files() -> set[tuple[int, int]]:
    """The regular files of this process's descriptors, each by device and inode."""
    found = set()
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the one that this loop reads from
            status = descriptor.stat()
            if stat.S_ISREG(status.st_mode):
                found.add((status.st_dev, status.st_ino))
    return found
