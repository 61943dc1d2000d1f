"""Says what is in an archive, without running any of it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import struct
import tempfile
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from interpool.native.archive_format import (
    MANIFEST_PACKAGE,
    MANIFEST_RESOURCE,
    Action,
    Manifest,
)
from interpool.native.errors import ArchiveError, ManifestError, StructureError
from interpool.native.reader import read_manifest, read_records
from interpool.native.zip_structure import MOST_RATIO

if TYPE_CHECKING:
    from collections.abc import Iterator

_MAR_MANIFEST = "MAR-INF/MANIFEST.json"
_FREE_BYTES = 64 << 20
# All that zipfile raises for zips that it cannot read.
_NOT_A_ZIP = (zipfile.BadZipFile, ValueError, NotImplementedError, struct.error, zlib.error, EOFError)


@dataclass(frozen=True)
class Inspection:
    """What is in an archive.

    Attributes:
        archive: as given; ``m.mar`` when the package was found inside one.
        manifest: the package's.
        sizes: bytes of each member, by its name below the zip's root.
        size: of the package, in bytes.
    """

    archive: Path
    manifest: Manifest
    sizes: dict[str, int]
    size: int

    def count(self, action: Action) -> int:
        """How many modules were treated so."""
        return sum(done["action"] == action for done in self.manifest["modules"].values())

    def largest(self, count: int) -> list[tuple[str, int]]:
        """The largest members, largest first."""
        return sorted(self.sizes.items(), key=lambda item: (-item[1], item[0]))[:count]

    def as_dict(self) -> dict[str, Any]:
        """JSON-able form."""
        manifest = self.manifest
        return {
            "archive": str(self.archive),
            "size": self.size,
            "entry": manifest["entry"],
            "made_with": manifest["made_with"],
            "counts": {action: self.count(action) for action in ("intern", "extern", "mock")},
            "modules": manifest["modules"],
            "externs": manifest["externs"],
            "members": self.sizes,
        }


def inspect_archive(archive: Path) -> Inspection:
    """Read an archive's manifest and sizes.

    Args:
        archive: a hermetic archive, or a .mar (zip) that holds one.

    Raises:
        ArchiveError: missing, damaged, or without a manifest.
    """
    with _package(archive) as package:
        records = read_records(str(archive), package)
        manifest = read_manifest(str(archive), package, records)
        if manifest is None:
            raise ManifestError(
                f"{archive}: it has no {MANIFEST_PACKAGE}/{MANIFEST_RESOURCE}, so it was not made by "
                "interpool pack",
                "no-manifest",
            )
        return Inspection(
            archive=archive,
            manifest=manifest,
            sizes={name: record.size for name, record in records.items()},
            size=package.seek(0, os.SEEK_END),
        )


@contextlib.contextmanager
def _package(archive: Path) -> Iterator[IO[bytes]]:
    """The package's bytes, taken out of the .mar where there is one around it."""
    try:
        file = archive.open("rb")
    except OSError as error:
        raise ArchiveError(f"{archive}: cannot be read ({error.strerror})") from None
    with file:
        try:
            outer = zipfile.ZipFile(file)
        except _NOT_A_ZIP:
            outer = None
        if outer is None or _MAR_MANIFEST not in outer.namelist():
            yield file
            return
        name = _serialized_file(outer, archive)
        with tempfile.TemporaryFile() as inner:
            _unpack(outer, name, archive, inner)
            yield inner


def _unpack(outer: zipfile.ZipFile, name: str, archive: Path, inner: IO[bytes]) -> None:
    info = outer.getinfo(name)
    if info.file_size > _FREE_BYTES + MOST_RATIO * info.compress_size:
        raise StructureError(
            f"{archive}: {name} in it would unpack from {info.compress_size:,} to {info.file_size:,} bytes, "
            "as bombs do",
            "ratio",
        )
    try:
        with outer.open(info) as member:
            shutil.copyfileobj(member, inner)
    except (*_NOT_A_ZIP, RuntimeError) as error:
        raise StructureError(
            f"{archive}: {name} in it is damaged ({error}). Copy it again", "damaged"
        ) from None


def _serialized_file(outer: zipfile.ZipFile, archive: Path) -> str:
    try:
        name = json.loads(outer.read(_MAR_MANIFEST))["model"]["serializedFile"]
        outer.getinfo(name)
    except (*_NOT_A_ZIP, KeyError, TypeError, RuntimeError) as error:
        raise ArchiveError(
            f"{archive}: its {_MAR_MANIFEST} names no serialized file in it ({error})"
        ) from None
    return str(name)
