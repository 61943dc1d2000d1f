"""Opens a hermetic archive wherever it lies: by itself, or wrapped for TorchServe.

A TorchServe archive is a zip (``default``, ``zip-store``), a gzipped tar (``tgz``) or a
directory (``no-archive``). None of its code runs, and this module imports no torch.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tarfile
import tempfile
import zipfile
import zlib
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Any, Literal

from interpool.native.archive_format import Manifest
from interpool.native.errors import ArchiveError, ManifestError, StructureError
from interpool.native.reader import Record, read_manifest, read_records

if TYPE_CHECKING:
    from collections.abc import Iterator

_MAR_MANIFEST = "MAR-INF/MANIFEST.json"
_LONGEST_MAR_MANIFEST = 1 << 20

MarFormat = Literal["default", "zip-store", "tgz", "no-archive"]


@dataclass(frozen=True)
class Wrapping:
    """The TorchServe archive around a package.

    Attributes:
        archive_format: as torch-model-archiver calls it.
        model: what its MANIFEST.json says of the model: modelName, modelVersion, handler,
            serializedFile and so on.
        files: bytes of each file beside the package, by name.
    """

    archive_format: MarFormat
    model: dict[str, Any]
    files: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class OpenedArchive:
    """A hermetic archive, opened for reading; its structure was found good.

    Attributes:
        path: as given; messages name it.
        file: the package's bytes.
        size: of the package, in bytes.
        records: its members, by name below its root folder.
        manifest: what it says of itself. Its digests have not been compared.
        wrapping: the TorchServe archive around it, or None.
    """

    path: Path
    file: IO[bytes]
    size: int
    records: dict[str, Record]
    manifest: Manifest
    wrapping: Wrapping | None

    def read(self, name: str) -> bytes | None:
        """A member's content; None if there is none, or it is compressed."""
        record = self.records.get(name)
        if record is None or not record.stored:
            return None
        self.file.seek(record.offset)
        return self.file.read(record.size)


@contextlib.contextmanager
def open_archive(path: Path) -> Iterator[OpenedArchive]:
    """Open the package at ``path``, or in the TorchServe archive there.

    Raises:
        ArchiveError: missing, damaged, no hermetic archive, or around none.
    """
    with contextlib.ExitStack() as stack:
        try:
            file, wrapping = _find(path, stack)
            records = read_records(str(path), file)
            manifest = read_manifest(str(path), file, records)
            size = file.seek(0, os.SEEK_END)
        except OSError as error:
            raise ArchiveError(f"{path}: cannot be read ({error.strerror or error})") from None
        if manifest is None:
            raise ManifestError(
                f"{path}: it has no manifest as interpool pack writes it, so it was not made by interpool pack"
            )
        yield OpenedArchive(path, file, size, records, manifest, wrapping)


def _find(path: Path, stack: contextlib.ExitStack) -> tuple[IO[bytes], Wrapping | None]:
    if path.is_dir():
        return _in_directory(path, stack)
    file = stack.enter_context(path.open("rb"))
    if file.read(2) == b"\x1f\x8b":
        return _in_tar(path, stack)
    file.seek(0)
    with contextlib.suppress(zipfile.BadZipFile, ValueError, NotImplementedError):
        outer = stack.enter_context(zipfile.ZipFile(file))
        if _MAR_MANIFEST in outer.namelist():
            return _in_zip(path, outer, stack)
    return file, None


def _in_directory(path: Path, stack: contextlib.ExitStack) -> tuple[IO[bytes], Wrapping]:
    described = path / _MAR_MANIFEST
    if not described.is_file():
        raise StructureError(
            f"{path} is a directory without {_MAR_MANIFEST}; give an archive, or a directory that "
            "`interpool archive --archive-format no-archive` made"
        )
    files = {
        str(file.relative_to(path)): file.stat().st_size for file in sorted(path.rglob("*")) if file.is_file()
    }
    model = _model(path, described.read_bytes()[:_LONGEST_MAR_MANIFEST])
    name = _package_name(path, model, files)
    return stack.enter_context((path / name).open("rb")), Wrapping("no-archive", model, _beside(files, name))


def _in_zip(path: Path, outer: zipfile.ZipFile, stack: contextlib.ExitStack) -> tuple[IO[bytes], Wrapping]:
    try:
        files = {info.filename: info.file_size for info in outer.infolist() if not info.is_dir()}
        with outer.open(_MAR_MANIFEST) as member:
            model = _model(path, member.read(_LONGEST_MAR_MANIFEST))
        name = _package_name(path, model, files)
        stored = outer.getinfo(name).compress_type == zipfile.ZIP_STORED
        with outer.open(name) as member:
            file = _copied(path, member, files[name], stack)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise StructureError(f"{path} is damaged, or was cut short ({error}). Copy it again.") from None
    return file, Wrapping("zip-store" if stored else "default", model, _beside(files, name))


def _in_tar(path: Path, stack: contextlib.ExitStack) -> tuple[IO[bytes], Wrapping]:
    try:
        outer = stack.enter_context(tarfile.open(path, "r:gz"))  # noqa: SIM115 -- the stack closes it
        members = {_below_first(member.name): member for member in outer if member.isfile()}
        described = members.get(_MAR_MANIFEST)
        if described is None:
            raise StructureError(
                f"{path} is a tar archive without {_MAR_MANIFEST}, which TorchServe's always have"
            )
        model = _model(path, _extracted(outer, described).read(_LONGEST_MAR_MANIFEST))
        files = {name: member.size for name, member in members.items()}
        name = _package_name(path, model, files)
        file = _copied(path, _extracted(outer, members[name]), files[name], stack)
    except (tarfile.TarError, zlib.error, EOFError) as error:
        raise StructureError(f"{path} is damaged, or was cut short ({error}). Copy it again.") from None
    return file, Wrapping("tgz", model, _beside(files, name))


def _below_first(name: str) -> str:
    return "/".join(PurePosixPath(name).parts[1:])


def _extracted(outer: tarfile.TarFile, member: tarfile.TarInfo) -> IO[bytes]:
    found = outer.extractfile(member)
    assert found is not None  # a regular file
    return found


def _beside(files: dict[str, int], package: str) -> dict[str, int]:
    return {name: size for name, size in files.items() if name not in (package, _MAR_MANIFEST)}


def _copied(path: Path, source: IO[bytes], size: int, stack: contextlib.ExitStack) -> IO[bytes]:
    """A package as a file of its own: the reader wants offsets in a plain file."""
    room = shutil.disk_usage(tempfile.gettempdir()).free
    if size > room:
        raise ArchiveError(
            f"{path}: the package in it takes {size:,} bytes, and {tempfile.gettempdir()} has room for "
            f"{room:,}; set TMPDIR to a directory with more"
        )
    copy = stack.enter_context(tempfile.TemporaryFile())
    shutil.copyfileobj(source, copy, 1 << 20)
    return copy


def _model(path: Path, text: bytes) -> dict[str, Any]:
    try:
        model = json.loads(text)["model"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise StructureError(f"{path}: its {_MAR_MANIFEST} cannot be used ({error})") from None
    if not isinstance(model, dict):
        raise StructureError(f"{path}: its {_MAR_MANIFEST} says nothing of a model")
    return model


def _package_name(path: Path, model: dict[str, Any], files: dict[str, int]) -> str:
    name = model.get("serializedFile")
    # A name, not a path: TorchServe looks for it in the model's directory.
    if not isinstance(name, str) or "/" in name or name not in files:
        raise StructureError(f"{path}: its {_MAR_MANIFEST} names no serialized file in it ({name!r})")
    return name
