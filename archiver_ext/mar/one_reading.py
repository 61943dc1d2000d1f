"""Refuses a .mar that two readers may read in two ways.

Python reads a zip by its directory at the end, and TorchServe by the header before each file. Both formats
may give a file twice, under one name or under two that mean it. Then the last one wins. So what was verified
here could be another file than what is served.
"""

from __future__ import annotations

import struct
import zipfile
from typing import IO, TYPE_CHECKING, Final, NoReturn

from interpool.native.errors import StructureError

if TYPE_CHECKING:
    from pathlib import Path

RULE: Final = "mar-two-readings"
MOST_DIRECTORY_BYTES: Final = 16 << 20  # of a zip's directory: of a .mar's handful of files

_LOCAL = struct.Struct("<4s5H3I2H")
_WIDE = struct.Struct("<HHQQ")  # zip64's sizes in a local header, as Python writes them
_END, _LOCATOR, _END64 = 22, 20, 56  # bytes of zip's records at the end
_FULL = 0xFFFFFFFF
_UTF8 = 1 << 11
_KNOWN_FLAGS = _UTF8 | 1 << 1 | 1 << 2  # and the levels of deflate
_AGAIN = "Make it again with `interpool archive`"


class Names:
    """The names of a .mar's members, each of which must mean another file.

    Args:
        path: of the .mar, for messages.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: set[str] = set()

    def add(self, name: str, is_directory: bool) -> None:
        """Add a member.

        Raises:
            StructureError: the name leads out of the model's directory, or means a file that is there.
        """
        parts = [part for part in name.split("/") if part not in ("", ".")]
        if name.startswith("/") or ".." in parts:
            _refuse(self._path, f"{name} leads out of the model's directory")
        clean = "/".join(parts)
        if clean in self._seen and not is_directory:
            _refuse(self._path, f"it holds {clean} twice, and readers would take different ones")
        self._seen.add(clean)


def has_small_directory(file: IO[bytes]) -> bool:
    """Return whether a file ends as a zip with a directory that is not too large to be read into memory."""
    size = file.seek(0, 2)
    file.seek(max(0, size - _END - 0xFFFF - _LOCATOR - _END64))
    tail = file.read()
    end = tail.rfind(b"PK\5\6")
    if end < 0:
        return False
    stated = int.from_bytes(tail[end + 12 : end + 16], "little")
    wide = end - _LOCATOR - _END64
    if wide >= 0 and tail[end - _LOCATOR :].startswith(b"PK\6\7"):
        stated = int.from_bytes(tail[wide + 40 : wide + 48], "little")
    return stated <= MOST_DIRECTORY_BYTES


def check_zip(path: Path, file: IO[bytes], outer: zipfile.ZipFile) -> None:
    """Check that a zip's directory and the headers before its files say the same, without gaps.

    Args:
        path: of the .mar, for messages.
        file: its bytes.
        outer: the same, opened.

    Raises:
        StructureError: they differ, or something lies between the files.
        OSError: it cannot be read.
    """
    names = Names(path)
    at = 0
    for info in sorted(outer.infolist(), key=lambda one: one.header_offset):
        if info.filename != info.orig_filename:
            _refuse(path, f"the name {info.orig_filename!r} in it means different files to different readers")
        names.add(info.filename, info.is_dir())
        if info.header_offset != at:
            _refuse(path, f"something lies before {info.filename} that its directory does not list")
        at = _checked_end(path, file, info)
    if at != outer.start_dir:
        _refuse(path, "something lies before its directory that this does not list")


def _checked_end(path: Path, file: IO[bytes], info: zipfile.ZipInfo) -> int:
    """Return where a member ends, by the header before it, which must agree with the directory."""
    file.seek(info.header_offset)
    raw = file.read(_LOCAL.size)
    if len(raw) < _LOCAL.size:
        _refuse(path, f"it is cut short at {info.filename}")
    mark, _, flags, method, _, _, crc, packed, size, name_length, extra_length = _LOCAL.unpack(raw)
    name, extra = file.read(name_length), file.read(extra_length)
    if packed == _FULL and size == _FULL and len(extra) >= _WIDE.size:
        field, length, size, packed = _WIDE.unpack_from(extra)
        if (field, length) != (1, 16):
            _refuse(path, f"the sizes of {info.filename} in it are nowhere")
    expected = info.orig_filename.encode("utf-8" if info.flag_bits & _UTF8 else "cp437")
    stated = (mark, flags, method, crc, packed, size, name)
    listed = (b"PK\3\4", info.flag_bits, info.compress_type, info.CRC, info.compress_size, info.file_size)
    if stated != (*listed, expected) or flags & ~_KNOWN_FLAGS:
        _refuse(path, f"{info.filename} in it is described in two ways, or as no archiver does")
    return info.header_offset + _LOCAL.size + len(name) + len(extra) + info.compress_size


def _refuse(path: Path, what: str) -> NoReturn:
    raise StructureError(f"{path}: {what}. {_AGAIN}", RULE)
