"""Extracts an archive's data files and sources, for code that finds them through ``__file__``.

They are extracted once for all interpreters and processes of a user, into a folder named after their content.
Each user of a folder has a shared lock on it. A folder without a lock is unused, even if its process was
killed, and the next extraction removes it. (systemd's cleaning of /tmp skips locked folders.)

Shared libraries outlive their archive, because the dynamic linker identifies a library by its inode and torch
accepts an operator's registration only once. A reopened archive, or its next version, must use the same file
while the process lives.

Standard library only.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from interpool.native.errors import ArchiveError, DigestError

Fill = Callable[[Path], None]

# A fixed time: private copies of libraries are identified by path, size and modification time.
_NO_DATE = (0, 0)
_LIBRARY = "library"


class Folder:
    """A folder of extracted files, locked while it is in use.

    Attributes:
        path: of the folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._process = os.getpid()
        self._lock = _open_folder(path)
        fcntl.flock(self._lock, fcntl.LOCK_SH)
        _in_use.add(self)

    def release(self) -> None:
        """Release the lock; the last user removes the folder."""
        if self not in _in_use or os.getpid() != self._process:
            return  # a forked child shares its parent's lock
        _in_use.discard(self)
        # Unlock explicitly, because a child process may have inherited the descriptor.
        fcntl.flock(self._lock, fcntl.LOCK_UN)
        os.close(self._lock)
        with contextlib.suppress(OSError), _locked(self.path.parent):
            _remove_unused(self.path)


_in_use: set[Folder] = set()
_libraries: dict[str, Folder] = {}  # by digest


def extract(digests: Mapping[str, str], read: Callable[[str], bytes], archive: str) -> Folder:
    """Extract an archive's files.

    Args:
        digests: SHA-256 in hex of each file's content, by relative path. A name that ends in a slash is an
            empty folder.
        read: returns the content of a file, given its name.
        archive: the archive's path, for messages.

    Returns:
        The folder that contains all files; the caller releases it.

    Raises:
        DigestError: a file's content does not match its digest.
        ArchiveError: the files cannot be written.
    """

    def take(name: str) -> bytes:
        content = read(name)
        if hashlib.sha256(content).hexdigest() != digests[name]:
            raise DigestError(
                f"{archive}: {name} is not what its manifest says. Copy the archive again, or pack it again "
                "with `interpool pack`.",
                "digest",
            )
        return content

    def fill_library(folder: Path, name: str) -> None:
        _write(folder / _LIBRARY, take(name))

    def fill(folder: Path) -> None:
        # Create each level explicitly: parents that mkdir creates have another mode.
        for parent in sorted(
            {name[:end] for name in digests for end, each in enumerate(name) if each == "/"}
        ):
            (folder / parent).mkdir(mode=0o700)
        for name, digest in digests.items():
            file = folder / name
            if name.endswith("/"):
                continue  # created above
            if _is_library(name):
                os.link(_libraries[digest].path / _LIBRARY, file)
            else:
                _write(file, take(name))

    try:
        with _locked(base_folder()) as base:
            _sweep(base)
            for name, digest in digests.items():
                if _is_library(name) and digest not in _libraries:
                    path = base / f"library-{digest}"
                    _libraries[digest] = _folder(path, partial(fill_library, name=name))
            return _folder(base / _name_of(digests), fill)
    except OSError as error:
        raise ArchiveError(
            f"{archive}: its {len(digests)} files, which its code expects beside itself, cannot "
            f"be written below {tempfile.gettempdir()}: {error.strerror or error}. Make room there, or set "
            "TMPDIR to a directory that this process may write to.",
            "data-files",
        ) from error


def release_all() -> None:
    """Release all folders, when an interpreter ends."""
    for folder in list(_in_use):
        folder.release()
    _libraries.clear()


atexit.register(release_all)


def base_folder() -> Path:
    """Return the parent of all these folders; only this user may access it.

    Raises:
        ArchiveError: another user owns it, or may access it.
        OSError: it cannot be created.
    """
    base = Path(tempfile.gettempdir(), f"interpool-data-{os.getuid()}")
    with contextlib.suppress(FileExistsError):
        base.mkdir(mode=0o700)
    found = base.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise ArchiveError(
            f"{base} must be a directory of this user with mode 0700, for code is loaded from there; remove "
            "it, or set TMPDIR to another directory.",
            "data-files",
        )
    return base


def _name_of(digests: Mapping[str, str]) -> str:
    whole = hashlib.sha256()
    for name, digest in sorted(digests.items()):
        whole.update(f"{digest} {name}\0".encode())
    return f"data-{whole.hexdigest()}"


def _is_library(name: str) -> bool:
    file = name.rpartition("/")[2]
    return file.endswith(".so") or ".so." in file


def _write(file: Path, content: bytes) -> None:
    handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o400)
    with open(handle, "wb") as opened:
        opened.write(content)
        opened.flush()
        os.utime(handle, _NO_DATE)


def _folder(path: Path, fill: Fill) -> Folder:
    """Return the folder at ``path``, filled if it does not exist. The caller locks the base."""
    if not path.exists():
        draft = Path(tempfile.mkdtemp(prefix="new-", dir=path.parent))
        try:
            fill(draft)
            draft.rename(path)
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise
    return Folder(path)


@contextlib.contextmanager
def _locked(base: Path) -> Iterator[Path]:
    """Lock the base: no other process of this user creates or removes folders during the block."""
    handle = _open_folder(base)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield base
    finally:
        # unlock explicitly, because a forked child has the descriptor, too
        fcntl.flock(handle, fcntl.LOCK_UN)
        os.close(handle)


def _open_folder(path: Path) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)


def _sweep(base: Path) -> None:
    for path in base.iterdir():
        with contextlib.suppress(OSError):
            _remove_unused(path)


def _remove_unused(path: Path) -> None:
    """Remove a folder unless it is locked. The caller locks the base."""
    handle = _open_folder(path)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Rename it first, so that a folder under its own name is always complete.
        gone = tempfile.mkdtemp(prefix="old-", dir=path.parent)
        path.rename(gone)
        shutil.rmtree(gone)
    except BlockingIOError:
        pass
    finally:
        os.close(handle)
