"""Appends members to a finished zip without changing the entries of existing members."""

from __future__ import annotations

import zipfile
from pathlib import PurePosixPath
from typing import IO, TYPE_CHECKING

from interpool.native.upstream.cpython_private import keep_name_flags

if TYPE_CHECKING:
    from pathlib import Path


# A fixed time, as in torch.package.
_NO_DATE = (1980, 1, 1, 0, 0, 0)


def opened_to_append(archive: Path | IO[bytes]) -> zipfile.ZipFile:
    """Open the zip for a ``with`` statement, which writes its directory again at the end.

    The flags of existing members stay, because the reader refuses archives whose directory and headers
    differ.

    Raises:
        OSError: the archive cannot be opened for writing.
    """
    file = zipfile.ZipFile(archive, "a", allowZip64=True)
    keep_name_flags(file)
    return file


def write_member(file: zipfile.ZipFile, name: str, content: bytes) -> None:
    """Append a member; ``name`` is below the zip's root folder.

    Args:
        file: the open zip.
        name: of the member.
        content: its bytes.
    """
    root = PurePosixPath(file.namelist()[0]).parts[0]
    file.writestr(zipfile.ZipInfo(f"{root}/{name}", _NO_DATE), content)


def last_member(file: zipfile.ZipFile) -> zipfile.ZipInfo:
    """Return the last member in the order of the file."""
    return max(file.filelist, key=lambda info: info.header_offset)


def drop_last_member(file: zipfile.ZipFile) -> None:
    """Forget the last member, so that the next one overwrites it and the directory that follows it."""
    last = last_member(file)
    file.filelist.remove(last)
    del file.NameToInfo[last.filename]
    file.start_dir = last.header_offset
