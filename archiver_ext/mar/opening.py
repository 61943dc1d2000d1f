"""Opens a hermetic archive, by itself or inside a .mar, for inspection.

None of its code runs, and this module does not import torch.
"""

from __future__ import annotations

import contextlib
import os
import zipfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Any, Literal

from interpool.archiver_ext.mar.reading import (
    MAR_MANIFEST,
    ZIP_ERRORS,
    FoundArchive,
    find_archive,
    tgz_errors,
    tgz_members,
)
from interpool.native.archive.bounded import LARGEST
from interpool.native.archive.format import Manifest
from interpool.native.archive.reader import Record, read_manifest, read_records
from interpool.native.errors import ManifestError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from tarfile import TarInfo

MarFormat = Literal["default", "zip-store", "tgz", "no-archive"]


@dataclass(frozen=True)
class Wrapping:
    """The TorchServe archive around a package.

    Attributes:
        archive_format: torch-model-archiver's name of it.
        model: the ``model`` section of its MANIFEST.json: modelName, modelVersion, handler, serializedFile
            and so on.
        files: bytes of each file beside the package, by name.
    """

    archive_format: MarFormat
    model: dict[str, Any]
    files: dict[str, int]


@dataclass(frozen=True)
class OpenedArchive:
    """A hermetic archive, opened for reading; its structure has been checked.

    Attributes:
        path: as given.
        shown: its name for messages.
        file: the package's bytes.
        size: of the package, in bytes.
        records: its members, by name below its root folder.
        manifest: its manifest. Its digests have not been compared.
        wrapping: the TorchServe archive around it, or None.
    """

    path: Path
    shown: str
    file: IO[bytes]
    size: int
    records: dict[str, Record]
    manifest: Manifest
    wrapping: Wrapping | None

    def read(self, name: str) -> bytes | None:
        """Return a member's content; None if it does not exist or is compressed."""
        record = self.records.get(name)
        if record is None or not record.stored:
            return None
        self.file.seek(record.offset)
        return self.file.read(record.size)


@contextlib.contextmanager
def open_archive(path: Path) -> Iterator[OpenedArchive]:
    """Open the archive at ``path``, or the one in the .mar there, in any of its formats.

    Raises:
        ArchiveError: missing, damaged, or without a hermetic archive.
    """
    with find_archive(path) as found:
        records = read_records(found.shown, found.file)
        manifest = read_manifest(found.shown, found.file, records)
        if manifest is None:
            raise ManifestError(
                f"{found.shown}: it has no manifest, so it was not made by interpool pack; pack it again"
            )
        size = found.file.seek(0, os.SEEK_END)
        wrapping = _wrapping(path, found)
        yield OpenedArchive(path, found.shown, found.file, size, records, manifest, wrapping)


def _wrapping(path: Path, found: FoundArchive) -> Wrapping | None:
    if not found.format:
        return None
    model = found.mar_manifest["model"]
    stored = False
    if found.format == "directory":
        files = {
            str(file.relative_to(path)): file.lstat().st_size for file in path.rglob("*") if file.is_file()
        }
    elif found.format == "tgz":
        with tgz_errors(path), path.open("rb") as file:
            files = {
                _name_beside(member): member.size
                for member, inside in tgz_members(path, file)
                if inside is not None
            }
    else:
        with zipfile.ZipFile(path) as outer:
            stored = outer.getinfo(model["serializedFile"]).compress_type == zipfile.ZIP_STORED
            files = {info.filename: info.file_size for info in outer.infolist() if not info.is_dir()}
    zip_format: MarFormat = "zip-store" if stored else "default"
    formats: dict[str, MarFormat] = {"directory": "no-archive", "tgz": "tgz", "zip": zip_format}
    around = (model["serializedFile"], MAR_MANIFEST)
    beside = {name: size for name, size in sorted(files.items()) if name not in around}
    return Wrapping(formats[found.format], model, beside)


def _name_beside(member: TarInfo) -> str:
    """Return the member's name below the model's directory."""
    return "/".join(PurePosixPath(member.name).parts[1:])


def read_beside(path: Path, wrapping: Wrapping, name: str) -> bytes | None:
    """Return the start of a file beside the package, enough for any configuration; None if it is missing.

    Args:
        path: of the .mar.
        wrapping: the .mar's description.
        name: of the file in the .mar.

    Raises:
        OSError: the .mar, or the file in its directory, cannot be read.
    """
    most = LARGEST + 1
    if wrapping.archive_format == "no-archive":
        file = path / name
        if not os.path.isfile(file):
            return None
        with file.open("rb") as content:
            return content.read(most)
    if wrapping.archive_format == "tgz":
        with tgz_errors(path), path.open("rb") as packed:
            for member, inside in tgz_members(path, packed):
                if inside is not None and _name_beside(member) == name:
                    return inside.read(most)
        return None
    try:
        with zipfile.ZipFile(path) as outer, outer.open(name) as inner:
            return inner.read(most)
    except (KeyError, *ZIP_ERRORS):
        return None
