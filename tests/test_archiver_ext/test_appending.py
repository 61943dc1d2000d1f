"""Members are appended to archives of any size."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from test_native.hostile.zips import Member, zip_of

from interpool.archiver_ext.appending import opened_to_append, write_member
from interpool.native.archive.reader import read_records

GIB = 1 << 30


def _with_weights(path: Path, size: int) -> None:
    """An archive with weights of that size behind all else, laid out as torch does; they are a hole."""
    name = b"archive/.data/0.storage"
    small = zip_of([Member("archive/.data/version", b"6"), Member("archive/.data/extern_modules", b"")])
    (start,) = struct.unpack_from("<I", small, len(small) - 6)
    common = (0, 0, 0, 0x21, 0, size, size, len(name), 0)
    with path.open("wb") as file:
        file.write(small[:start] + struct.pack("<4sH4H3I2H", b"PK\3\4", 20, *common) + name)
        file.seek(size, 1)
        directory = file.tell()
        entry = struct.pack("<4s2H4H3I5H2I", b"PK\1\2", 20, 20, *common, 0, 0, 0, 0, start)
        file.write(small[start:-22] + entry + name)
        length = file.tell() - directory
        file.write(struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 3, 3, length, directory, 0))


@pytest.mark.parametrize("size", [2 * GIB - 100, 4 * GIB - 4096])
def test_archives_of_some_gib_are_read_before_and_after_a_member_is_appended(
    tmp_path: Path, size: int
) -> None:
    path = tmp_path / "a.ptpkg"
    _with_weights(path, size)
    for added in (1, 2, 3):
        with path.open("rb") as file:
            records = read_records(str(path), file)
        assert records[".data/0.storage"].size == size
        assert len(records) == 2 + added
        with opened_to_append(path) as archive:
            write_member(archive, f"{added}.json", b"{}")
