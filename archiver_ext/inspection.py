"""Says what is in an archive, without running any of it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from interpool.archiver_ext.mar_reading import find_archive
from interpool.native.archive_format import (
    MANIFEST_PACKAGE,
    MANIFEST_RESOURCE,
    Action,
    Manifest,
    parse_manifest,
)
from interpool.native.errors import ArchiveError
from interpool.native.reader import read_records

if TYPE_CHECKING:
    from pathlib import Path


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
        archive: a hermetic archive, or a .mar of any format that holds one.

    Raises:
        ArchiveError: missing, damaged, or without a manifest.
    """
    with find_archive(archive) as found:
        package = found.file
        records = read_records(str(archive), package)
        manifest = records.get(f"{MANIFEST_PACKAGE}/{MANIFEST_RESOURCE}")
        if manifest is None or not manifest.stored:
            raise ArchiveError(
                f"{archive}: it has no {MANIFEST_PACKAGE}/{MANIFEST_RESOURCE} as interpool pack "
                "writes it, so it was not made by interpool pack"
            )
        package.seek(manifest.offset)
        text = package.read(manifest.size)
        return Inspection(
            archive=archive,
            manifest=parse_manifest(text, str(archive)),
            sizes={name: record.size for name, record in records.items()},
            size=package.seek(0, os.SEEK_END),
        )
