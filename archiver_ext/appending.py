"""Appends members to a finished zip without changing the entries of existing members."""

from __future__ import annotations

import zipfile
from typing import IO, TYPE_CHECKING

from interpool.native.upstream.cpython_private import keep_name_flags

if TYPE_CHECKING:
    from pathlib import Path


def opened_to_append(archive: Path | IO[bytes]) -> zipfile.ZipFile:
    """Open the zip for a ``with`` statement, which writes its directory again at the end.

    The flags of existing members stay, because the reader refuses archives whose directory and headers
    differ.
    """
    file = zipfile.ZipFile(archive, "a", allowZip64=True)
    keep_name_flags(file)
    return file
