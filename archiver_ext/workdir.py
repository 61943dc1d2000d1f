"""Where what is being made lies until it is complete."""

from __future__ import annotations

import contextlib
import errno
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from interpool.archiver_ext.errors import PackError

if TYPE_CHECKING:
    from collections.abc import Iterator

_UNWRITABLE = {
    *(errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO),
    errno.ENAMETOOLONG,
}


@contextlib.contextmanager
def workdir_for(target: Path) -> Iterator[Path]:
    """A directory of our own, beside the target: so the last step is a rename within one file system.

    Raises:
        PackError: nothing can be written there: no right to, no room, a file system that is read-only.
    """
    try:
        with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as name:
            yield Path(name)
    except OSError as error:
        if error.errno not in _UNWRITABLE:
            raise
        raise PackError(f"cannot write {target}: {error}") from None
