"""What an archive may replace, and where its files lie until they are complete."""

from __future__ import annotations

import contextlib
import errno
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from interpool.archiver_ext.errors import PackError

if TYPE_CHECKING:
    from collections.abc import Iterator

PLANNING = "interpool-plan"  # the target of a plan's trial, which is never written

_UNWRITABLE = {
    *(errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO),
    errno.ENAMETOOLONG,
}


def refuse_special_file(target: Path, advice: str) -> None:
    """Refuse to write to what is no file: a device or a pipe would be replaced by a file.

    Args:
        target: what is written; it may not exist yet, or be a symbolic link.
        advice: the end of the message.

    Raises:
        PackError: it exists, and is no file.
    """
    if target.exists() and not target.is_file():
        raise PackError(f"cannot write {target}: it exists, and is no file; {advice}")


@contextlib.contextmanager
def workdir_for(target: Path) -> Iterator[Path]:
    """Create a temporary directory beside the target, so that a rename within the file system can finish.

    Raises:
        PackError: it cannot be written: no permission, no space, or a read-only file system.
    """
    try:
        with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as name:
            yield Path(name)
    except OSError as error:
        if error.errno not in _UNWRITABLE:
            raise
        raise PackError(f"cannot write {target}: {error}") from None
