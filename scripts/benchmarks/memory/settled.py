"""What a process of ``memory`` takes."""

from __future__ import annotations

import gc
from pathlib import Path

FIELDS = {"Pss": "pss", "Private_Dirty": "dirty"}


def memory() -> dict[str, float]:
    """This process's, settled, in MB."""
    gc.collect()
    found = {}
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines():
        name, _, rest = line.partition(":")
        if name in FIELDS:
            found[FIELDS[name]] = int(rest.split()[0]) * 1024 / 1e6
    return found
