"""The directory that templates and slot copies live in, and how files appear there.

Nothing is ever changed in place: a file is written beside its final name and
renamed, so that whoever sees a name sees a whole file.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from interpool.native.errors import ProvisioningError


def cache_root() -> Path:
    """``$INTERPOOL_CACHE``, else ``$XDG_CACHE_HOME/interpool``, else ``~/.cache/interpool``."""
    chosen = os.environ.get("INTERPOOL_CACHE")
    if chosen:
        return Path(os.path.abspath(os.path.expanduser(chosen)))
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(os.path.abspath(os.path.expanduser(home))) / "interpool"


def private_directory(path: Path) -> Path:
    """Create ``path`` and missing parents, readable by their owner only; returns ``path``.

    Raises:
        ProvisioningError: it cannot be created, or belongs to another user, whose
            libraries this process would then load.
    """
    try:
        missing = []
        at = path
        while not at.is_dir():
            missing.append(at)
            at = at.parent
        for directory in reversed(missing):
            with contextlib.suppress(FileExistsError):
                directory.mkdir(mode=0o700)
        owner = path.stat().st_uid
    except OSError as error:
        raise _unusable(path, error) from error
    if owner not in (os.geteuid(), 0):
        raise ProvisioningError(
            f"the cache directory {path} belongs to user {owner}, so its libraries are not trusted; "
            "set INTERPOOL_CACHE to a directory of your own"
        )
    return path


@contextlib.contextmanager
def new_file(final: Path) -> Iterator[Path]:
    """A fresh name beside ``final``; renamed to ``final`` on success, removed otherwise."""
    try:
        handle, name = tempfile.mkstemp(prefix=".new-", dir=final.parent)
    except OSError as error:
        raise _unusable(final.parent, error) from error
    os.close(handle)
    draft = Path(name)
    try:
        yield draft
        os.replace(draft, final)
    except OSError as error:
        raise _unusable(final.parent, error) from error
    finally:
        draft.unlink(missing_ok=True)


@contextlib.contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hold ``directory`` against other processes and threads that build in it."""
    try:
        handle = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise _unusable(directory, error) from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def copy_file(source: Path, target: Path) -> None:
    """Copy the contents; shares the blocks where the file system can (reflink)."""
    with open(source, "rb") as reader, open(target, "wb") as writer:
        left = os.fstat(reader.fileno()).st_size
        try:
            while left > 0:
                done = os.copy_file_range(reader.fileno(), writer.fileno(), left)
                if done == 0:
                    break
                left -= done
        except OSError as error:
            if error.errno not in (errno.EXDEV, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL):
                raise
            reader.seek(0)
            writer.seek(0)
            writer.truncate()
            shutil.copyfileobj(reader, writer, 1 << 20)


def _unusable(path: Path, error: OSError) -> ProvisioningError:
    return ProvisioningError(
        f"cannot write to the cache directory {path}: {error.strerror}; "
        "make room or make it writable, or set INTERPOOL_CACHE to another directory"
    )
