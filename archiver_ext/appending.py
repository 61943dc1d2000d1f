"""A finished zip, opened to append members: whatever is said of those that are there stays as it is."""

from __future__ import annotations

import zipfile
from typing import IO, TYPE_CHECKING

from interpool.native.upstream.cpython_private import keep_name_flags

if TYPE_CHECKING:
    from pathlib import Path


def opened_to_append(archive: Path | IO[bytes]) -> zipfile.ZipFile:
    """The zip, for a ``with`` statement; it writes its directory again when that ends.

    The reader of archives refuses one whose directory and whose members' headers differ.
    """
    file = zipfile.ZipFile(archive, "a", allowZip64=True)
    keep_name_flags(file)
    return file
