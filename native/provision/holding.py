"""Locks cache entries in use, so that no process removes them.

A set (an environment's directory) has a file ``locks/held``, in which one byte each represents the set, a
slot, and an original's files. A process has shared locks on the bytes that it uses until it ends. To remove
an entry, a process takes an exclusive lock. The locks belong to the open file description, because record
locks would be lost if other code closed the same file.

The last use of an entry is the modification time of its directory. A starting process sets the time of its
set, and ``sweeping.py`` the times of all entries in use.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import struct
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from interpool.native.errors import ProvisioningError
from interpool.native.provision.store import private_directory

if TYPE_CHECKING:
    from collections.abc import Iterator

SET = 0
_ALL = (SET, 0)  # all bytes
_FLOCK = "hhqqi4x"  # struct flock of 64-bit systems
_ATTEMPTS = 100  # to open a file that other processes may remove


def slot_byte(slot: int) -> int:
    """Return the byte for a slot."""
    return 1 + slot


def file_byte(key: str) -> int:
    """Return the byte for an original and its copies. If two share it, both count as used."""
    return (1 << 20) + int(hashlib.sha256(key.encode()).hexdigest()[:8], 16)


class Holder:
    """Locks the entries of one set that this process uses, until the process ends.

    Any thread may use it. Deleting the object keeps the locks, because the process may still load the
    entries. If the cache does not support locks, nothing is locked, and no process can remove entries.

    Args:
        directory: of the set.
    """

    def __init__(self, directory: Path) -> None:
        self._path = str(_locks(directory))
        self._held: set[int] = set()
        self._descriptor = -1
        self._changing = threading.Lock()
        self.hold(SET)
        with contextlib.suppress(OSError):
            os.utime(directory)

    def hold(self, byte: int) -> None:
        """Lock the entry that a byte represents."""
        if byte in self._held:
            return
        with self._changing:
            with contextlib.suppress(OSError, ProvisioningError):
                if not _is_at(self._descriptor, self._path):
                    self._begin()
                _lock(self._descriptor, fcntl.F_OFD_SETLKW, fcntl.F_RDLCK, byte, 1)
            self._held.add(byte)  # also after a failure: one attempt is enough

    def release(self) -> None:
        """Unlock all entries; only if the process has loaded none of them."""
        with self._changing:
            if _is_at(self._descriptor, self._path):
                os.close(self._descriptor)
            self._descriptor = -1
            self._held.clear()

    def _begin(self) -> None:
        """Open the file of locks and repeat the previous locks."""
        for _ in range(_ATTEMPTS):
            descriptor = _open(self._path)
            try:
                for byte in self._held | {SET}:
                    _lock(descriptor, fcntl.F_OFD_SETLKW, fcntl.F_RDLCK, byte, 1)
            except OSError:
                os.close(descriptor)
                raise
            if not _is_at(descriptor, self._path):  # the set was removed in between
                os.close(descriptor)
                continue
            # Do not close the previous descriptor: if other code closed it, its number may be another file's.
            self._descriptor = descriptor
            return


@contextlib.contextmanager
def unheld(directory: Path, byte: int | None = None) -> Iterator[bool]:
    """Yield whether no process, this one included, uses a set or one of its entries.

    If so, no process can start to use it before the ``with`` block ends.

    Args:
        directory: of the set.
        byte: represents the entry; None for the whole set.

    Raises:
        OSError: the locks cannot be read.
        ProvisioningError: the locks cannot be read.
    """
    path = str(_locks(directory))
    descriptor = _open(path)
    try:
        start, length = _ALL if byte is None else (byte, 1)
        is_free = False
        with contextlib.suppress(BlockingIOError):
            _lock(descriptor, fcntl.F_OFD_SETLK, fcntl.F_WRLCK, start, length)
            is_free = _is_at(descriptor, path)  # otherwise it was removed, and perhaps made again
        try:
            yield is_free
        finally:
            # Unlock explicitly, because a forked child has the descriptor, too.
            _lock(descriptor, fcntl.F_OFD_SETLK, fcntl.F_UNLCK, start, length)
    finally:
        os.close(descriptor)


def is_held(directory: Path) -> bool:
    """Return whether a process uses a set, as far as can be determined; changes nothing."""
    try:
        descriptor = os.open(_locks(directory), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return _lock(descriptor, fcntl.F_OFD_GETLK, fcntl.F_WRLCK, *_ALL) != fcntl.F_UNLCK
    except OSError:
        return False
    finally:
        os.close(descriptor)


def _locks(directory: Path) -> Path:
    return directory / "locks" / "held"


def _open(path: str) -> int:
    for _ in range(_ATTEMPTS):
        private_directory(Path(path).parent)
        try:
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            continue  # the set was removed in between
        except OSError:
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC)  # sufficient for shared locks
    raise OSError(errno.EBUSY, f"{path} is removed again and again")


def _is_at(descriptor: int, path: str) -> bool:
    """Return whether the descriptor refers to the file that is at the path now."""
    try:
        ours, theirs = os.fstat(descriptor), os.stat(path)
    except OSError:
        return False
    return (ours.st_dev, ours.st_ino) == (theirs.st_dev, theirs.st_ino)


def _lock(descriptor: int, command: int, kind: int, start: int, length: int) -> int:
    """Request a lock; returns the kind of the conflicting lock for ``F_OFD_GETLK``."""
    asked = struct.pack(_FLOCK, kind, os.SEEK_SET, start, length, 0)
    answer = fcntl.fcntl(descriptor, command, asked)
    return int(struct.unpack(_FLOCK, answer)[0])
