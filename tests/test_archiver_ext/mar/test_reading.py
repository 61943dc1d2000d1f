"""Reading .mar files that no archiver wrote."""

from __future__ import annotations

import io
import json
import tarfile
from typing import TYPE_CHECKING

import pytest
from archives import write_archive

from interpool.archiver_ext.inspect.inspection import inspect_archive
from interpool.native.errors import StructureError

if TYPE_CHECKING:
    from pathlib import Path


def tgz(path: Path, contents: dict[str, bytes], headers: dict[str, dict[str, str]]) -> Path:
    """A .tar.gz of these contents by name, whose members have these pax headers."""
    with tarfile.open(path, "w:gz", format=tarfile.PAX_FORMAT) as file:
        for name, content in contents.items():
            info = tarfile.TarInfo(f"m/{name}")
            info.size, info.pax_headers = len(content), headers.get(name, {})
            file.addfile(info, io.BytesIO(content))
    return path


@pytest.fixture
def contents(tmp_path: Path) -> dict[str, bytes]:
    manifest = {"model": {"modelName": "m", "serializedFile": "m.ptpkg"}}
    return {
        "before.txt": b"cat",
        "m.ptpkg": write_archive(tmp_path / "m.ptpkg", {}).read_bytes(),
        "MAR-INF/MANIFEST.json": json.dumps(manifest).encode(),
        "after.txt": b"dog",
    }


@pytest.mark.parametrize("size", ["99999999999999999999", "-2048"])
@pytest.mark.parametrize("member", ["before.txt", "m.ptpkg", "MAR-INF/MANIFEST.json", "after.txt"])
def test_a_tar_gz_with_a_size_that_cannot_be_is_refused(
    tmp_path: Path, contents: dict[str, bytes], member: str, size: str
) -> None:
    mar = tgz(tmp_path / "m.tar.gz", contents, {member: {"size": size}})
    with pytest.raises(StructureError, match=r"would unpack|a size below 0"):
        inspect_archive(mar)


def test_a_sparse_member_of_a_tar_gz_is_no_archive(tmp_path: Path, contents: dict[str, bytes]) -> None:
    far = {"GNU.sparse.map": "0,1,10,99999999999999999999,1,100", "GNU.sparse.size": "101"}
    mar = tgz(tmp_path / "m.tar.gz", contents, {"m.ptpkg": far})
    with pytest.raises(StructureError, match=r"m\.ptpkg is a link or a directory"):
        inspect_archive(mar)
