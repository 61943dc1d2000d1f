"""Whether a living process holds a directory, for code that would remove it.

A holder has a shared lock on the directory, or on a file in it (``shim.hold``). A process id would say less,
because each container that shares the directory numbers its processes itself.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

IN_HOME = "held"  # the file in a server's home that the frontend holds


def owned(directory: Path, prefix: str) -> Iterator[Path]:
    """This user's paths in a directory whose names begin with ``prefix``; none if it cannot be read."""
    with contextlib.suppress(OSError):
        for path in directory.iterdir():
            with contextlib.suppress(FileNotFoundError):  # another process has just removed it
                if path.name.startswith(prefix) and path.lstat().st_uid == os.getuid():
                    yield path


@contextlib.contextmanager
def unheld(path: Path) -> Iterator[bool]:
    """Whether no process holds ``path``; if so, no process can hold it until the ``with`` statement ends.

    If that cannot be determined, ``path`` counts as held.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        yield False
        return
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
        else:
            yield True
            fcntl.flock(
                descriptor, fcntl.LOCK_UN
            )  # a child that was forked meanwhile has the descriptor, too
    finally:
        os.close(descriptor)
