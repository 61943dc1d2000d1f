"""Who uses what in the cache, so that nothing is removed under a living process.

A set (an environment's directory) has a file ``locks/held``, in which a byte each stands for the set, for a
slot, and for an original's files. A process holds shared locks of what it uses until it ends, however it
ends; who removes something holds an exclusive one of it meanwhile. These are locks of the open file
description: the file may be opened and closed elsewhere in the process, as record locks may not.

When something was last used is the time of a small file beside it, since a container's file system copies a
file whose time is set, to the disk. So it is not done while a process starts, either, but for the set.
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
_ALL = (SET, 0)  # to the end of all offsets
_FLOCK = "hhqqi4x"  # struct flock of 64-bit systems
_ATTEMPTS = 100  # of opening what others remove meanwhile


def slot_byte(slot: int) -> int:
    """What stands for a slot."""
    return 1 + slot


def file_byte(key: str) -> int:
    """What stands for an original and the copies of it. Two may share one: then both are used."""
    return (1 << 20) + int(hashlib.sha256(key.encode()).hexdigest()[:8], 16)


def set_stamp(directory: Path) -> Path:
    """The file whose time says when a set was last used."""
    return directory / "environment.json"


def slot_stamp(slot: Path) -> Path:
    """The file whose time says when a slot was last used."""
    return slot / "used"


def file_stamp(home: Path) -> Path:
    """The file whose time says when an original was last used."""
    return home / "record.json"


class Holder:
    """What this process uses of one set, held until the process ends.

    For any thread. It is not given up with the object, as the process may still be loading it. Where the
    cache cannot be locked nothing is held, and nobody else can find out that something may be removed.

    Args:
        directory: the set's.
    """

    def __init__(self, directory: Path) -> None:
        self._path = str(_locks(directory))
        self._held: set[int] = set()
        self._undated: list[Path] | None = []  # None: each is dated at once
        self._descriptor = -1
        self._changing = threading.Lock()
        self.hold(SET, set_stamp(directory))
        _date(set_stamp(directory))

    def hold(self, byte: int, stamp: Path) -> None:
        """Hold what a byte stands for; its stamp is for ``date``."""
        if byte in self._held:
            return
        with self._changing:
            with contextlib.suppress(OSError, ProvisioningError):
                if not _is_at(self._descriptor, self._path):
                    self._begin()
                _lock(self._descriptor, fcntl.F_OFD_SETLKW, fcntl.F_RDLCK, byte, 1)
            self._held.add(byte)  # also where it could not be: once is enough
            if self._undated is not None:
                self._undated.append(stamp)
                return
        _date(stamp)

    def date(self) -> None:
        """Note that all that is held is used today, and from now on each when it is held."""
        with self._changing:
            undated, self._undated = self._undated, None
        for stamp in undated or ():
            _date(stamp)

    def release(self) -> None:
        """Give all of it up; only for who has loaded nothing of it."""
        with self._changing:
            if _is_at(self._descriptor, self._path):
                os.close(self._descriptor)
            self._descriptor = -1
            self._held.clear()
            self._undated = []

    def _begin(self) -> None:
        """Open the file of locks and hold there what was held before."""
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
            # The one before stays open: if somebody has closed it, its number may be another file's now.
            self._descriptor = descriptor
            return


@contextlib.contextmanager
def unheld(directory: Path, byte: int | None = None) -> Iterator[bool]:
    """Whether no process, this one included, uses a set, or of it what a byte stands for.

    If so, none can begin to before the ``with`` statement ends.

    Raises:
        OSError: that cannot be found out.
        ProvisioningError: the same.
    """
    path = str(_locks(directory))
    descriptor = _open(path)
    try:
        start, length = _ALL if byte is None else (byte, 1)
        is_free = False
        with contextlib.suppress(BlockingIOError):
            _lock(descriptor, fcntl.F_OFD_SETLK, fcntl.F_WRLCK, start, length)
            is_free = _is_at(descriptor, path)  # else it was removed in between, and may be there anew
        try:
            yield is_free
        finally:
            # A child that was forked meanwhile has the descriptor, too.
            _lock(descriptor, fcntl.F_OFD_SETLK, fcntl.F_UNLCK, start, length)
    finally:
        os.close(descriptor)


def is_held(directory: Path) -> bool:
    """Whether a process uses a set, as far as can be seen; changes nothing."""
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


def _date(stamp: Path) -> None:
    with contextlib.suppress(OSError):
        os.utime(stamp)


def _open(path: str) -> int:
    for _ in range(_ATTEMPTS):
        private_directory(Path(path).parent)
        try:
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            continue  # the set was removed in between
        except OSError:
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC)  # enough for shared locks
    raise OSError(errno.EBUSY, f"{path} is removed again and again")


def _is_at(descriptor: int, path: str) -> bool:
    """Whether the descriptor is of the file that others find there."""
    try:
        ours, theirs = os.fstat(descriptor), os.stat(path)
    except OSError:
        return False
    return (ours.st_dev, ours.st_ino) == (theirs.st_dev, theirs.st_ino)


def _lock(descriptor: int, command: int, kind: int, start: int, length: int) -> int:
    """Ask for a lock; gives the kind that ``F_OFD_GETLK`` says stands in the way."""
    asked = struct.pack(_FLOCK, kind, os.SEEK_SET, start, length, 0)
    answer = fcntl.fcntl(descriptor, command, asked)
    return int(struct.unpack(_FLOCK, answer)[0])
