"""The runtime directories, in which shims and hosts meet: a host's own, and those of servers that are gone.

A host holds its directory (``shim.hold``), and a process that starts a host has the lock in it. The process
id in a directory's name is valid only in the system and PID namespace that the name gives. A directory of
another container or machine is removed only if it was not used for a day.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import time
from pathlib import Path

from interpool.handler.frontend import shim
from interpool.handler.frontend.held import unheld

UNUSED_S = 24 * 3600.0  # a host touches its files every hour
_NAME = re.compile(r"(?P<pid>\d+)-(?P<start>\d*)-(?:(?P<system>[0-9a-f]{8}\.[0-9a-f]+)-)?.+")

logger = logging.getLogger("interpool.host")


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


class RuntimeDirectory:
    """A host's own directory, which it holds. For the host's control thread.

    Args:
        path: the directory; the caller holds its lock.

    Raises:
        OSError: the directory cannot be held.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._hold = shim.hold(str(path))
        self._lock = -1

    def touch(self) -> None:
        """Touch the host's files, so that no program that removes old files from /tmp removes them.

        systemd spares sockets by their names, but it knows this one by another name.
        """
        with contextlib.suppress(OSError):
            for path in (self._path.parent, self._path, *self._path.iterdir()):
                os.utime(path, follow_symlinks=False)

    def lock(self) -> None:
        """Take the directory's lock if it can be had, so that no other host starts while this one leaves."""
        try:
            if self._is_there():  # else the lock is not this host's, either
                self._lock = shim.lock(str(self._path))
        except (shim.Refused, OSError) as error:
            # The workers still learn of the end.
            logger.warning("leaving without the lock: %s", error)

    def unlock(self, *, remove: bool) -> None:
        """Let go of the lock, if ``lock`` has taken it; before that, ``remove`` the directory."""
        if self._lock >= 0:
            if remove and self._is_there():
                shutil.rmtree(self._path, ignore_errors=True)
            os.close(self._lock)

    def close(self) -> None:
        """Hold the directory no longer."""
        os.close(self._hold)

    def _is_there(self) -> bool:
        """Whether the directory is the one that this host holds; else it was removed meanwhile.

        The next host may then have made it again.
        """
        try:
            return os.path.samestat(os.stat(self._path), os.fstat(self._hold))
        except OSError:
            return False
