"""A .mar that readers may read in several ways is refused: what is verified is what is served."""

from __future__ import annotations

import io
import json
import struct
import tarfile
import zipfile
from pathlib import Path

import pytest
from archives import write_archive

from interpool.archiver_ext.inspect.inspection import inspect_archive
from interpool.archiver_ext.mar.one_reading import MOST_DIRECTORY_BYTES, has_small_directory
from interpool.handler.errors import ServeError
from interpool.handler.host.extracting import extracted
from interpool.native.errors import ArchiveError, StructureError

MANIFEST = "MAR-INF/MANIFEST.json"
OTHER = b"another package"


@pytest.fixture
def contents(tmp_path: Path) -> list[tuple[str, bytes]]:
    manifest = {"model": {"modelName": "m", "serializedFile": "m.ptpkg"}}
    package = write_archive(tmp_path / "m.ptpkg", {}).read_bytes()
    return [("m.ptpkg", package), (MANIFEST, json.dumps(manifest).encode())]


def zipped(path: Path, contents: list[tuple[str, bytes]]) -> Path:
    with zipfile.ZipFile(path, "w") as file:
        for name, content in contents:
            file.writestr(zipfile.ZipInfo(name), content)
    return path


def tgz(path: Path, contents: list[tuple[str, bytes]], root: str = "m/") -> Path:
    with tarfile.open(path, "w:gz") as file:
        for name, content in contents:
            info = tarfile.TarInfo(name if name.startswith("/") else f"{root}{name}")
            info.size = len(content)
            file.addfile(info, io.BytesIO(content))
    return path


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_what_an_archiver_writes_is_read(
    tmp_path: Path, contents: list[tuple[str, bytes]], method: int
) -> None:
    with zipfile.ZipFile(tmp_path / "m.mar", "w", method) as file:
        file.mkdir("folder")
        for name, content in [*contents, ("folder/größe.txt", b"text")]:
            with file.open(name, "w", force_zip64=name == "m.ptpkg") as member:
                member.write(content)
    assert inspect_archive(tmp_path / "m.mar").wrapping is not None


@pytest.mark.parametrize("name", ["./m.ptpkg", "x/../m.ptpkg", "/m.ptpkg", "../m.ptpkg", f"./{MANIFEST}"])
def test_a_second_name_for_a_file_is_refused(
    tmp_path: Path, contents: list[tuple[str, bytes]], name: str
) -> None:
    for mar in (
        zipped(tmp_path / "m.mar", [*contents, (name, OTHER)]),
        tgz(tmp_path / "m.tar.gz", [*contents, (name, OTHER)]),
    ):
        with pytest.raises(StructureError, match=r"twice|leads out of the model's directory"):
            inspect_archive(mar)


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("name", ["m.ptpkg", MANIFEST, "utils.py"])
def test_a_tar_gz_with_a_file_twice_is_refused_and_not_served(
    tmp_path: Path, contents: list[tuple[str, bytes]], name: str, first: bool
) -> None:
    contents = [*contents, ("utils.py", b"")]
    other = (name, OTHER)
    mar = tgz(tmp_path / "m.tar.gz", [other, *contents] if first else [*contents, other])
    with pytest.raises(ArchiveError):
        inspect_archive(mar)
    with pytest.raises(ServeError, match=rf"holds m/{name} twice"), extracted(mar):
        pass


def local_entry(name: str, content: bytes) -> bytes:
    """A stored file and the header before it."""
    path = io.BytesIO()
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(name, content)
        return path.getvalue()[: file.start_dir] if file.start_dir else path.getvalue()


def with_hidden(mar: Path, before: bool) -> None:
    """Put a file into a zip that its directory does not list."""
    content = mar.read_bytes()
    with zipfile.ZipFile(mar) as file:
        directory = file.start_dir
    hidden = local_entry("m.ptpkg", OTHER)
    if before:
        mar.write_bytes(hidden + content)
        return
    end = bytearray(content[directory:])
    struct.pack_into("<I", end, len(end) - 6, directory + len(hidden))
    mar.write_bytes(content[:directory] + hidden + end)


@pytest.mark.parametrize("before", [True, False])
def test_a_file_that_the_directory_does_not_list_is_refused(
    tmp_path: Path, contents: list[tuple[str, bytes]], before: bool
) -> None:
    mar = zipped(tmp_path / "m.mar", contents)
    with_hidden(mar, before)
    with zipfile.ZipFile(mar) as file:  # as Python reads it
        assert file.read("m.ptpkg") == contents[0][1]
    with pytest.raises(StructureError, match=r"its directory does not list|that this does not list"):
        inspect_archive(mar)


@pytest.mark.parametrize(("at", "change"), [(6, 1 << 3), (18, 1), (22, 1), (30, 1)])
def test_a_header_that_differs_from_the_directory_is_refused(
    tmp_path: Path, contents: list[tuple[str, bytes]], at: int, change: int
) -> None:
    mar = zipped(tmp_path / "m.mar", contents)
    content = bytearray(mar.read_bytes())
    content[at] ^= change  # of the package's header: flags, sizes, name
    mar.write_bytes(content)
    with pytest.raises(StructureError, match=r"described in two ways|is damaged"):
        inspect_archive(mar)


def zip_end(directory_bytes: int) -> bytes:
    return struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 0, 0, directory_bytes, 0, 0)


def test_a_zip_with_a_directory_of_millions_of_files_is_not_read_into_memory() -> None:
    wide = struct.pack("<4sQ2H2I4Q", b"PK\6\6", 44, 0, 0, 0, 0, 0, 0, MOST_DIRECTORY_BYTES + 1, 0)
    locator = struct.pack("<4sIQI", b"PK\6\7", 0, 0, 1)
    for content, is_small in (
        (bytes(1000) + zip_end(MOST_DIRECTORY_BYTES), True),
        (bytes(1000) + zip_end(MOST_DIRECTORY_BYTES + 1), False),
        (wide + locator + zip_end(100), False),
        (b"no zip", False),
    ):
        assert has_small_directory(io.BytesIO(content)) is is_small
