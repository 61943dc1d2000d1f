"""Removes what no process has used for long from the cache, and sooner what makes it too large.

A set goes as a whole. Of one that is in use go slots and originals' files that are not, and what was made of
files that have changed or gone. ``holding.py`` says what is in use. What `interpool prepare` has named to
programs without a Python stays as long as the file in which it did names it.

What goes is renamed while nobody can begin to use it, and removed afterwards, which takes longer.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import math
import os
import re
import shutil
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from interpool.native.errors import ProvisioningError
from interpool.native.provision.holding import (
    Holder,
    file_byte,
    file_stamp,
    set_stamp,
    slot_byte,
    slot_stamp,
    unheld,
)
from interpool.native.provision.limits import DAY_S, Limits, limits
from interpool.native.provision.records import file_key, load_record
from interpool.native.provision.store import cache_root, private_directory

if TYPE_CHECKING:
    from collections.abc import Iterable

# Later than what a start, and the models' first calls, will use.
DELAY_S = 60.0
# So long nobody cleans again, and what was used in that time stays, however large the cache is.
_RECENT_S = 3600.0
_LONG_S = 14 * DAY_S
_REMOVED = ".removed-"
_SET = re.compile(r"[0-9a-f]{16}")

logger = logging.getLogger("interpool.provision")


def sets(root: Path) -> list[Path]:
    """The directories of all environments."""
    try:
        return sorted(each for each in root.iterdir() if _SET.fullmatch(each.name) and each.is_dir())
    except OSError:
        return []


def last_used(stamp: Path) -> float:
    """When something was used, as seconds since 1970."""
    try:
        return stamp.stat().st_mtime
    except OSError:
        return stamp.parent.stat().st_mtime


def keep_for(directory: Path, file: Path) -> None:
    """Keep a set whose copies a file names for programs that hold nothing, while it does."""
    place = os.path.abspath(file)
    link = private_directory(directory / "prepared") / hashlib.sha256(os.fsencode(place)).hexdigest()[:16]
    with contextlib.suppress(FileExistsError):
        link.symlink_to(place)


def kept_for(directory: Path) -> list[Path]:
    """The files that a set is kept for."""
    found = []
    for link in directory.glob("prepared/*"):
        try:
            names_it = f"/{directory.name}/" in link.read_text(errors="replace")
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            continue
        except OSError:
            names_it = True  # for all that can be seen
        if names_it:
            with contextlib.suppress(FileNotFoundError):
                found.append(link.readlink())
    return found


def disk_bytes(directory: Path) -> int:
    """What a directory takes on the disk."""
    seen = set()
    total = 0
    for folder, _, names in os.walk(directory):
        for name in (".", *names):
            with contextlib.suppress(OSError):
                status = os.lstat(os.path.join(folder, name))
                if (status.st_dev, status.st_ino) not in seen:
                    seen.add((status.st_dev, status.st_ino))
                    total += status.st_blocks * 512
    return total


def clean(root: Path, within: Limits) -> list[Path]:
    """Sweep as the limits say; gives what was removed.

    While it is too large, what was unused for half as long goes, too, down to an hour: what a process has
    just used the next one will use.
    """
    gone = sweep(root, within.unused_s)
    unused_s = min(within.unused_s, _LONG_S)
    while unused_s > _RECENT_S and disk_bytes(root) > within.size:
        unused_s = max(unused_s / 2, _RECENT_S)
        gone += sweep(root, unused_s)
    return gone


def sweep(root: Path, unused_for_s: float) -> list[Path]:
    """Remove what no process has used for so many seconds; gives what it was.

    For any process and thread, any number of them at once. What cannot be removed is told in the log.
    """
    work = _Sweep(root, time.time() - unused_for_s)
    for directory in sets(root):
        work.sweep_set(directory)
    work.remove()
    for left in root.glob(f"{_REMOVED}*"):  # by a process that was killed
        shutil.rmtree(left, ignore_errors=True)
    return work.gone


def sweep_orphans(directory: Path) -> None:
    """Remove, of a set, what was made from files that have changed or gone, and that no process uses.

    Not where a file names copies: programs that hold nothing may use any of them.
    """
    if kept_for(directory):
        return
    work = _Sweep(directory.parent, -math.inf)
    for home in _entries(directory / "files"):
        work.sweep_file(directory, home)
    work.remove()


def sweep_later(holder: Holder) -> None:
    """Date what this process uses, and clean, beside its work and once it has lived for a minute.

    Nobody does within an hour of another process.
    """
    try:
        within = limits()
    except ProvisioningError as error:
        logger.error("%s. The cache is not cleaned", error)
        return
    if within == Limits():
        return
    timer = threading.Timer(DELAY_S, _clean_now, (cache_root(), within, holder))
    timer.name = "cache"
    timer.daemon = True
    timer.start()


def _clean_now(root: Path, within: Limits, holder: Holder) -> None:
    note = root / ".swept"
    try:
        holder.date()
        if not os.access(root, os.W_OK) or time.time() - _changed(note) < _RECENT_S:
            return
        note.touch()
        gone = clean(root, within)
    except Exception:  # whatever it is: the process has other work
        logger.exception("the cache %s could not be cleaned", root)
        return
    if gone:
        logger.info("removed from the cache %s, as unused or for room: %d entries", root, len(gone))


def _changed(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except OSError:
        return 0.0


class _Sweep:
    """What one sweep does.

    Args:
        root: the cache.
        oldest: what was last used before is removed; as seconds since 1970.

    Attributes:
        gone: what was removed.
    """

    def __init__(self, root: Path, oldest: float) -> None:
        self._root = root
        self._oldest = oldest
        self._aside: list[Path] = []
        self.gone: list[Path] = []

    def sweep_set(self, directory: Path) -> None:
        """All of it, or what is unused of it."""
        if kept_for(directory) or self._put_aside(directory, set_stamp(directory), directory, None):
            return
        for slot in _entries(directory / "slots"):
            if slot.name.isdecimal():
                self._put_aside(slot, slot_stamp(slot), directory, slot_byte(int(slot.name)))
        for home in _entries(directory / "files"):
            self.sweep_file(directory, home)

    def sweep_file(self, directory: Path, home: Path) -> None:
        """What was made from an original, if that is unused, has changed or is gone."""
        copies = directory.glob(f"slots/*/{home.name}-*")
        self._put_aside(home, file_stamp(home), directory, file_byte(home.name), copies, _is_orphan(home))

    def remove(self) -> None:
        """Remove what was put aside."""
        for path in self._aside:
            shutil.rmtree(path, ignore_errors=True)

    def _put_aside(
        self,
        path: Path,
        stamp: Path,
        directory: Path,
        byte: int | None,
        with_it: Iterable[Path] = (),
        at_any_age: bool = False,
    ) -> bool:
        """Do so if it is too old and nobody uses it; whether it was done."""
        try:
            if not at_any_age and last_used(stamp) >= self._oldest:
                return False
            with unheld(directory, byte) as is_free:
                if not is_free:
                    if not at_any_age:
                        os.utime(stamp)  # a process that lives that long uses it today
                    return False
                if not at_any_age and last_used(stamp) >= self._oldest:  # by now
                    return False
                for each in (*with_it, path):  # the one last by which the others are found
                    aside = self._root / f"{_REMOVED}{os.urandom(8).hex()}"
                    each.rename(aside)
                    self._aside.append(aside)
        except FileNotFoundError:
            return False  # another process was first
        except (OSError, ProvisioningError) as error:
            logger.warning("%s could not be removed from the cache: %s", path, error)
            return False
        self.gone.append(path)
        return True


def _is_orphan(home: Path) -> bool:
    """Whether the file that it was made from has changed or gone."""
    record = load_record(home)
    if record is None:
        return False
    try:
        return file_key(record.path, os.stat(record.path)) != home.name
    except (OSError, ProvisioningError):
        return True


def _entries(directory: Path) -> list[Path]:
    try:
        return sorted(directory.iterdir())
    except OSError:
        return []
