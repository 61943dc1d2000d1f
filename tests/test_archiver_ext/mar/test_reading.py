"""Reading .mar files that no archiver wrote."""

from __future__ import annotations

import gzip
import io
import json
import resource
import tarfile
import tracemalloc
import zipfile
from typing import TYPE_CHECKING

import pytest
from archives import write_archive
from click.testing import CliRunner

from interpool.archiver_ext.inspect.inspection import inspect_archive
from interpool.handler.cli import main
from interpool.native.errors import ArchiveError, StructureError

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


def zipped(path: Path, contents: dict[str, bytes], method: int) -> Path:
    """A .mar of these contents by name, compressed by this method."""
    with zipfile.ZipFile(path, "w", method) as file:
        for name, content in contents.items():
            file.writestr(name, content)
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


def test_long_headers_of_a_tar_gz_are_not_read_into_memory(tmp_path: Path) -> None:
    name = tarfile.TarInfo("name")
    name.type, name.size = tarfile.GNUTYPE_LONGNAME, 64 << 20
    mar = tmp_path / "m.tar.gz"
    with gzip.open(mar, "wb") as file:
        file.write(name.tobuf(tarfile.GNU_FORMAT) + bytes(name.size) + tarfile.TarInfo("m").tobuf())
    tracemalloc.start()
    try:
        with pytest.raises(StructureError, match="has longer headers than any"):
            inspect_archive(mar)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


def test_a_sparse_member_of_a_tar_gz_is_no_archive(tmp_path: Path, contents: dict[str, bytes]) -> None:
    far = {"GNU.sparse.map": "0,1,10,99999999999999999999,1,100", "GNU.sparse.size": "101"}
    mar = tgz(tmp_path / "m.tar.gz", contents, {"m.ptpkg": far})
    with pytest.raises(StructureError, match=r"m\.ptpkg is a link or a directory"):
        inspect_archive(mar)


@pytest.mark.parametrize("member", ["MAR-INF/MANIFEST.json", "m.ptpkg"])
@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA, zipfile.ZIP_DEFLATED])
def test_a_damaged_member_of_a_zip_is_refused(
    tmp_path: Path, contents: dict[str, bytes], method: int, member: str
) -> None:
    mar = zipped(tmp_path / "m.mar", contents, method)
    with zipfile.ZipFile(mar) as file:
        start = file.getinfo(member).header_offset + 30 + len(member)
    damaged = bytearray(mar.read_bytes())
    damaged[start : start + 40] = bytes(each ^ 0x5A for each in damaged[start : start + 40])
    mar.write_bytes(damaged)
    with pytest.raises(StructureError, match=f"{member} in it is damaged"):
        inspect_archive(mar)


def test_headers_of_a_tar_gz_that_are_no_numbers_are_refused(
    tmp_path: Path, contents: dict[str, bytes]
) -> None:
    mar = tgz(tmp_path / "m.tar.gz", contents, {"m.ptpkg": {"GNU.sparse.map": "a,b"}})
    with pytest.raises(StructureError, match=r"is a damaged \.tar\.gz"):
        inspect_archive(mar)


def test_a_model_name_that_is_no_text_is_shown(tmp_path: Path, contents: dict[str, bytes]) -> None:
    manifest = {"model": {"modelName": "\ud800", "serializedFile": "m.ptpkg"}}
    body = b"[1.0]"
    where = {"package": "interpool-archive", "resource": "request.json"}
    request = {**where, "content_type": "application/json", "part": None}
    members = {"interpool-archive/request.json": body.decode()}
    content = write_archive(tmp_path / "m.ptpkg", {}, members, request=request).read_bytes()
    named = {**contents, "m.ptpkg": content, "MAR-INF/MANIFEST.json": json.dumps(manifest).encode()}
    done = CliRunner().invoke(main, ["inspect", str(zipped(tmp_path / "m.mar", named, 0))])
    assert done.exit_code == 0
    assert "/predictions/%3F" in done.output


def test_a_path_that_leads_nowhere_is_refused(tmp_path: Path) -> None:
    loop = tmp_path / "loop.ptpkg"
    loop.symlink_to(loop.name)
    with pytest.raises(ArchiveError, match="Too many levels of symbolic links"):
        inspect_archive(loop)
    with pytest.raises(ArchiveError, match="File name too long"):
        inspect_archive(tmp_path / ("m" * 300))


@pytest.mark.parametrize("archive_format", ["zip", "tgz"])
def test_a_temporary_place_without_room_is_not_said_to_be_damage(
    tmp_path: Path, contents: dict[str, bytes], archive_format: str
) -> None:
    if archive_format == "zip":
        mar = zipped(tmp_path / "m.mar", contents, zipfile.ZIP_STORED)
    else:
        mar = tgz(tmp_path / "m.tar.gz", contents, {})
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        with pytest.raises(ArchiveError, match=r"cannot be copied to a temporary file .*File too large"):
            inspect_archive(mar)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
