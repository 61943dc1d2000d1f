"""Removes cache entries that no process has used for long, and more if the cache is too large.

An unused set is removed as a whole. Of a set in use, unused slots and originals' files are removed, and files
whose originals were changed or removed. ``holding.py`` determines use. The entries that a file of `interpool
prepare` names stay while it does, because the programs that use them lock nothing.

An entry is first renamed under an exclusive lock, and then removed, which takes longer.
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
from interpool.native.provision.cache_limits import DAY_S, Limits, limits
from interpool.native.provision.holding import file_byte, slot_byte, unheld
from interpool.native.provision.records import file_key, load_record
from interpool.native.provision.store import cache_root, private_directory, unusable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# Start-up and the models' first calls should be over by then.
DELAY_S = 60.0
# Minimum time between two cleanings; entries used within it stay, even if the cache is too large.
_RECENT_S = 3600.0
_LONG_S = 14 * DAY_S
_REMOVED = ".removed-"
_SET = re.compile(r"[0-9a-f]{16}")

logger = logging.getLogger("interpool.provision")


def sets(root: Path) -> list[Path]:
    """Return the directories of all environments."""
    try:
        return sorted(each for each in root.iterdir() if _SET.fullmatch(each.name) and each.is_dir())
    except OSError:
        return []


def keep_for(directory: Path, file: Path) -> None:
    """Keep a set while a file names its copies, for programs that lock nothing.

    Args:
        directory: of the set.
        file: the file that names copies.

    Raises:
        ProvisioningError: the note cannot be made in the set.
    """
    place = os.path.abspath(file)
    link = private_directory(directory / "prepared") / hashlib.sha256(os.fsencode(place)).hexdigest()[:16]
    try:
        link.symlink_to(place)
    except FileExistsError:
        pass
    except OSError as error:
        raise unusable(link.parent, error) from error


def kept_for(directory: Path) -> list[Path]:
    """Return the files for which a set is kept."""
    return [file for file, _ in _notes(directory)]


def _notes(directory: Path) -> Iterator[tuple[Path, str | None]]:
    """Yield each file that names copies of a set, and its text; None if the text cannot be read."""
    for link in directory.glob("prepared/*"):
        text = None
        try:
            text = link.read_text(errors="replace")
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            continue
        except OSError:
            pass
        if text is None or f"/{directory.name}/" in text:
            with contextlib.suppress(FileNotFoundError):
                yield link.readlink(), text


def disk_bytes(directory: Path) -> int:
    """Return the size of a directory on disk."""
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
    """Sweep within the limits; returns the removed entries.

    While the cache is too large, the age limit is halved repeatedly, down to an hour. Recently used entries
    stay, because the next process will use them.

    Args:
        root: the cache.
        within: the limits.
    """
    gone = sweep(root, within.unused_s)
    unused_s = min(within.unused_s, _LONG_S)
    while unused_s > _RECENT_S and disk_bytes(root) > within.size:
        unused_s = max(unused_s / 2, _RECENT_S)
        gone += sweep(root, unused_s)
    return gone


def sweep(root: Path, unused_for_s: float) -> list[Path]:
    """Remove entries that no process has used for some time; returns them.

    Safe for concurrent processes and threads. Failures are logged.

    Args:
        root: the cache.
        unused_for_s: the time, in seconds.
    """
    oldest = time.time() - unused_for_s
    gone = []
    for directory in sets(root):
        if not kept_for(directory) and _put_aside(directory, directory, None, oldest):
            gone.append(directory)
            continue
        slots = [slot for slot in _unnamed(directory, "slots") if slot.name.isdecimal()]
        gone += [slot for slot in slots if _put_aside(slot, directory, slot_byte(int(slot.name)), oldest)]
        gone += _put_files_aside(directory, oldest)
    _remove_all_aside(root)
    return gone


def sweep_orphans(directory: Path) -> None:
    """Remove unused entries of a set whose original files were changed or removed.

    Entries that a file of `interpool prepare` names stay.
    """
    _put_files_aside(directory, -math.inf)
    _remove_all_aside(directory.parent)


def sweep_later() -> None:
    """Clean the cache, in a thread, after a minute.

    Processes clean at most once an hour.
    """
    try:
        within = limits()
    except ProvisioningError as error:
        logger.error("%s. The cache is not cleaned", error)
        return
    if within == Limits():
        return
    timer = threading.Timer(DELAY_S, _clean_now, (cache_root(), within))
    timer.name = "cache"
    timer.daemon = True
    timer.start()


def _clean_now(root: Path, within: Limits) -> None:
    note = root / ".swept"
    try:
        if not os.access(root, os.W_OK):
            return
        if note.exists() and time.time() - note.stat().st_mtime < _RECENT_S:
            return
        note.touch()
        gone = clean(root, within)
    except Exception:  # the process has other work
        logger.exception("the cache %s could not be cleaned", root)
        return
    if gone:
        logger.info("removed from the cache %s, as unused or for room: %d entries", root, len(gone))


def _put_files_aside(directory: Path, oldest: float) -> list[Path]:
    """Put aside what was made from originals that are unused, changed or removed; returns the entries.

    Args:
        directory: the set.
        oldest: as for ``_put_aside``; minus infinity for changed and removed originals only.
    """
    gone = []
    for home in _unnamed(directory, "files"):
        before = math.inf if _is_orphan(home) else oldest
        copies = directory.glob(f"slots/*/{home.name}-*")
        if before > -math.inf and _put_aside(home, directory, file_byte(home.name), before, copies):
            gone.append(home)
    return gone


def _put_aside(
    path: Path, directory: Path, byte: int | None, oldest: float, with_it: Iterable[Path] = ()
) -> bool:
    """Put an entry aside if it is unused, or set the time of its last use; returns whether it did the former.

    Args:
        path: the entry.
        directory: the set that contains it.
        byte: represents it, as in ``unheld``.
        oldest: the entry stays if it was used at that time or later; seconds since 1970.
        with_it: copies that were made from it.
    """
    try:
        with unheld(directory, byte) as is_free:
            if not is_free:
                os.utime(path)
                return False
            if path.stat().st_mtime >= oldest:
                return False
            for each in (*with_it, path):  # path last: the others are found through it
                each.rename(directory.parent / f"{_REMOVED}{os.urandom(8).hex()}")
    except FileNotFoundError:
        return False  # removed by another process
    except (OSError, ProvisioningError) as error:
        logger.warning("%s could not be removed from the cache: %s", path, error)
        return False
    return True


def _remove_all_aside(root: Path) -> None:
    """Remove what was put aside, also by processes that were killed."""
    for path in root.glob(f"{_REMOVED}*"):
        shutil.rmtree(path, ignore_errors=True)


def _is_orphan(home: Path) -> bool:
    """Return whether the original file was changed or removed."""
    record = load_record(home)
    if record is None:
        return False
    try:
        return file_key(record.path, os.stat(record.path)) != home.name
    except (OSError, ProvisioningError):
        return True


def _unnamed(directory: Path, folder: str) -> list[Path]:
    """Return the entries in a folder of a set that no file of `interpool prepare` names.

    If such a file cannot be read, it might name any entry.
    """
    named = set()
    for _, text in _notes(directory):
        if text is None:
            return []
        for slot, original in re.findall(rf"/{directory.name}/slots/([^/\s]+)/([^/\s]+)-", text):
            named |= {slot, original}
    with contextlib.suppress(OSError):
        return sorted(each for each in (directory / folder).iterdir() if each.name not in named)
    return []
