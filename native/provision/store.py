"""Creates directories and files in the cache.

No file is changed in place. A file is written beside its final name and then renamed, so a file under its own
name is always complete. Writers have a lock of the cache, so any draft without a writer is from a
killed process.

If the cache cannot be written (full disk, quota, read-only file system), the process keeps the file in memory
and continues.
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

# Attempts to create a directory that other processes may remove.
_ATTEMPTS = 100
_CANNOT_COPY_RANGE = {errno.EXDEV, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL, errno.EPERM}


def cache_root() -> Path:
    """Return ``$INTERPOOL_CACHE``, else ``$XDG_CACHE_HOME/interpool``, else ``~/.cache/interpool``.

    Raises:
        ProvisioningError: the path begins with ``~``, and this user has no home directory.
    """
    if chosen := os.environ.get("INTERPOOL_CACHE"):
        return absolute(chosen)
    return absolute(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "interpool"


def absolute(path: str) -> Path:
    """Return the absolute path, with the home directory in place of ``~``.

    Raises:
        ProvisioningError: the user has no home directory.
    """
    expanded = os.path.expanduser(path)
    if expanded.startswith("~"):  # HOME is not set, and the system does not know the user
        raise ProvisioningError(
            f"{path} cannot be found: the system knows no home directory for it",
            "Set INTERPOOL_CACHE to an absolute path, or set HOME",
        )
    return Path(os.path.abspath(expanded))


def private_directory(path: Path) -> Path:
    """Create ``path`` and missing parents, accessible to their owner only; returns ``path``.

    Raises:
        ProvisioningError: it cannot be created, or belongs to another user, whose libraries this process
            would then load.
    """
    for left in reversed(range(_ATTEMPTS)):
        try:
            owner = _made(path)
            break
        except OSError as error:
            if left and isinstance(error, FileNotFoundError):
                continue  # another process that cleans the cache has removed it or its parent
            raise unusable(path, error) from error
    if owner not in (os.geteuid(), 0):
        raise ProvisioningError(
            f"the cache directory {path} belongs to user {owner}, so the libraries in it are not trusted",
            "Remove it, or set INTERPOOL_CACHE to a directory of your own",
        )
    return path


def _made(path: Path) -> int:
    """Create the directory if it is missing; returns its owner's user id."""
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
def parents_of(path: Path) -> Iterator[None]:
    """Create the missing parents of ``path`` for the block; if it fails, remove those that are empty.

    Args:
        path: absolute.

    Raises:
        OSError: a parent cannot be created.
    """
    missing = [each for each in path.parents if not each.exists()]  # innermost first
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException:
        for each in missing:
            with contextlib.suppress(OSError):
                each.rmdir()
        raise


@contextlib.contextmanager
def new_file(final: Path) -> Iterator[Path]:
    """Yield a draft beside a file in the cache: renamed to it on success, removed on failure.

    The caller has the lock that covers ``final``.

    Raises:
        ProvisioningError: an OSError occurred in the block, or the draft cannot be renamed.
    """
    try:
        with draft_of(final) as draft:
            yield draft
    except OSError as error:
        raise unusable(final.parent, error) from error


@contextlib.contextmanager
def draft_of(final: Path) -> Iterator[Path]:
    """Yield a draft beside ``final``: renamed to it on success, removed on failure.

    Raises:
        OSError: the draft cannot be renamed.
    """
    draft = final.with_name(f".new-{final.name}")
    try:
        yield draft
        os.replace(draft, final)
    finally:
        with contextlib.suppress(OSError):
            draft.unlink()


@contextlib.contextmanager
def locked(directory: Path, name: str) -> Iterator[None]:
    """Lock ``name`` in an environment's directory against other threads and processes, during the block.

    Args:
        directory: the environment's directory.
        name: of the lock; locks with different names are independent.

    Raises:
        ProvisioningError: the lock's file cannot be created, or cannot be locked.
    """
    with contextlib.ExitStack() as stack:
        try:
            locks = private_directory(directory / "locks")
            handle = os.open(locks / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            stack.callback(os.close, handle)
            fcntl.flock(handle, fcntl.LOCK_EX)
        except OSError as error:  # for example, a file system without locks
            raise unusable(directory, error) from error
        # Unlock explicitly, because a forked child has the descriptor, too.
        stack.callback(fcntl.flock, handle, fcntl.LOCK_UN)
        yield


def copy_file(source: Path, target: Path) -> None:
    """Copy the contents; shares blocks if the file system can (reflink).

    Args:
        source: the file to copy.
        target: the copy; it is overwritten.

    Raises:
        OSError: a file cannot be read or written.
    """
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
    """Create a file in memory, which lives as long as this process.

    Its descriptor stays open: the dynamic linker identifies a library by its path, so another file must not
    get the number.
    """
    descriptor = os.memfd_create(name, os.MFD_CLOEXEC)
    return Path(f"/proc/{os.getpid()}/fd/{descriptor}")  # not /proc/self, because child processes write to it


def unusable(path: Path, error: OSError) -> ProvisioningError:
    """Return the error for a cache directory that cannot be written.

    Args:
        path: the directory.
        error: the error of the failed write.
    """
    return ProvisioningError(
        f"cannot write to the cache directory {path}: {error.strerror}",
        "Make room or make it writable, or set INTERPOOL_CACHE to another directory",
    )
