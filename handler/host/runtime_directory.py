"""Removes the runtime directories, in which shims and hosts meet, of servers that are gone.

A host holds its directory (``shim.hold``), and a process that starts a host has the lock in it. The process
id in a directory's name is valid only in the system and PID namespace that the name gives. A directory of
another container or machine is removed only if it was not used for a day.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import time
from pathlib import Path

from interpool.handler.frontend import shim
from interpool.handler.frontend.held import unheld

UNUSED_S = 24 * 3600.0  # a host dates its files every hour
_NAME = re.compile(r"(?P<pid>\d+)-(?P<start>\d*)-(?:(?P<system>[0-9a-f]{8}\.[0-9a-f]+)-)?.+")


def remove_stale(base: Path) -> None:
    """Remove the runtime directories of TorchServe instances that are gone.

    Args:
        base: the directory that holds the runtime directories.

    Raises:
        OSError: that directory cannot be read.
    """
    for directory in base.iterdir():
        if _is_stale(directory):
            lock = directory / "lock"  # a process has it while it starts a host
            starts = unheld(lock) if lock.exists() else contextlib.nullcontext(True)
            with unheld(directory) as is_free, starts as is_quiet:
                if is_free and is_quiet:
                    shutil.rmtree(directory, ignore_errors=True)


def _is_stale(directory: Path) -> bool:
    name = _NAME.fullmatch(directory.name)
    if name is None:
        return False
    if name["system"] == shim.system_key():
        return shim.process_start(int(name["pid"])) != name["start"]
    try:
        return time.time() - directory.stat().st_mtime > UNUSED_S
    except OSError:
        return False
