"""What this process has mapped, from /proc/self/smaps."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

_HEAD = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) (\S+) \S+ \S+ \d+ *(.*)$")
_FIELD = re.compile(r"^(\w+): +(\d+) kB$")


@dataclass
class Mapping:
    """One line of the map.

    Attributes:
        name: the file, as the kernel tells it.
        size: in bytes.
        kib: ``Pss``, ``Private_Dirty`` and so on, KiB.
    """

    name: str
    size: int
    permissions: str
    kib: dict[str, int] = field(default_factory=dict)


def mappings() -> list[Mapping]:
    """All of them."""
    found: list[Mapping] = []
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if head := _HEAD.match(line):
            start, end, permissions, name = head.groups()
            found.append(Mapping(name, int(end, 16) - int(start, 16), permissions))
        elif value := _FIELD.match(line):
            found[-1].kib[value[1]] = int(value[2])
    return found


def snapshots(at_least: int) -> list[Mapping]:
    """Writable mappings of unnamed files: what the pool maps archives from."""
    return [
        mapping
        for mapping in mappings()
        if mapping.name.endswith("(deleted)") and "w" in mapping.permissions and mapping.size >= at_least
    ]
