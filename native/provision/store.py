"""The directory that templates and slot copies live in, and how files appear there.

Nothing is ever changed in place: a file is written beside its final name and
renamed, so that whoever sees a name sees a whole file. Writers hold a lock of
the cache meanwhile, so a draft found beside a name was left by a killed process.

What cannot be written there (a full disk, a quota, a file system that became read-only) is held in
memory by the process that needs it: a pool that runs goes on.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from interpool.native.errors import ProvisioningError

if TYPE_CHECKING:
    from collections.abc import Iterator

# copy_file_range is refused between some file systems, and on some altogether.
_ATTEMPTS = 100  # of making a directory that others remove meanwhile
_CANNOT_COPY_RANGE = {errno.EXDEV, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL, errno.EPERM}


def cache_root() -> Path:
    """``$INTERPOOL_CACHE``, else ``$XDG_CACHE_HOME/interpool``, else ``~/.cache/interpool``."""
    chosen = os.environ.get("INTERPOOL_CACHE")
    if chosen:
        return Path(os.path.abspath(os.path.expanduser(chosen)))
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(os.path.abspath(os.path.expanduser(home))) / "interpool"


def private_directory(path: Path) -> Path:
    """Create ``path`` and missing parents, accessible to their owner only; returns ``path``.

    Raises:
        ProvisioningError: it cannot be created, or belongs to another user, whose
            libraries this process would then load.
    """
    for left in reversed(range(_ATTEMPTS)):
        try:
            owner = _made(path)
            break
        except OSError as error:
            if left and isinstance(error, FileNotFoundError):
                continue  # who cleans the cache has removed it again, or its parent
            raise unusable(path, error) from error
    if owner not in (os.geteuid(), 0):
        raise ProvisioningError(
            f"the cache directory {path} belongs to user {owner}, so the libraries in it are not trusted",
            "Remove it, or set INTERPOOL_CACHE to a directory of your own",
        )
    return path


def _made(path: Path) -> int:
    """Whose the directory is, made if it was not there."""
    missing = []
    at = path
    while not at.is_dir():
        missing.append(at)
        at = at.parent
    for directory in reversed(missing):
        with contextlib.suppress(FileExistsError):
            directory.mkdir(mode=0o700)
    return path.stat().st_uid


@contextlib.contextmanager
def new_file(final: Path) -> Iterator[Path]:
    """A draft beside ``final``: renamed to it on success, removed on failure.

    The caller holds the lock that covers ``final``.
    """
    draft = final.with_name(f".new-{final.name}")
    try:
        yield draft
        os.replace(draft, final)
    except OSError as error:
        raise unusable(final.parent, error) from error
    finally:
        with contextlib.suppress(OSError):
            draft.unlink()


@contextlib.contextmanager
def locked(directory: Path, name: str) -> Iterator[None]:
    """Hold the lock ``name`` of an environment's directory against other threads and processes."""
    with contextlib.ExitStack() as stack:
        try:
            locks = private_directory(directory / "locks")
            handle = os.open(locks / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            stack.callback(os.close, handle)
            fcntl.flock(handle, fcntl.LOCK_EX)
        except OSError as error:  # as of a file system without locks
            raise unusable(directory, error) from error
        # A child that was forked meanwhile has the descriptor, too.
        stack.callback(fcntl.flock, handle, fcntl.LOCK_UN)
        yield


def copy_file(source: Path, target: Path) -> None:
    """Copy the contents; shares the blocks where the file system can (reflink)."""
    with open(source, "rb") as reader, open(target, "wb") as writer:
        left = os.fstat(reader.fileno()).st_size
        try:
            while left > 0:
                done = os.copy_file_range(reader.fileno(), writer.fileno(), left)
                if done == 0:
                    raise OSError(errno.EIO, f"{source} shrank while it was copied")
                left -= done
        except OSError as error:
            if error.errno not in _CANNOT_COPY_RANGE:
                raise
            reader.seek(0)
            writer.seek(0)
            writer.truncate()
            shutil.copyfileobj(reader, writer, 1 << 20)


def file_in_memory(name: str) -> Path:
    """A new file in memory, which lives as long as this process.

    Its descriptor stays open: the dynamic linker takes equal paths for one library, and its number must
    not become another file's.
    """
    descriptor = os.memfd_create(name, os.MFD_CLOEXEC)
    return Path(f"/proc/{os.getpid()}/fd/{descriptor}")  # not /proc/self: child processes write to it


def unusable(path: Path, error: OSError) -> ProvisioningError:
    """The error for a cache directory that could not be written to."""
    return ProvisioningError(
        f"cannot write to the cache directory {path}: {error.strerror}",
        "Make room or make it writable, or set INTERPOOL_CACHE to another directory",
    )
