"""Lists the contents of an archive without running any of it."""

from __future__ import annotations

import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interpool.archiver_ext.inspect.storages import StorageRecord, read_storages
from interpool.archiver_ext.mar.opening import Wrapping, open_archive, read_beside
from interpool.archiver_ext.verify.signing import SignatureState, signature_state
from interpool.native.errors import InterpoolError

if TYPE_CHECKING:
    from collections.abc import Callable

    from interpool.native.archive.format import Action, Manifest


@dataclass(frozen=True)
class Inspection:
    """The contents of an archive; digests and signature have not been checked.

    Attributes:
        archive: the path as given; ``m.mar`` if the package is inside one.
        manifest: of the package.
        sizes: bytes of each member, by its name below the zip's root.
        size: of the package, in bytes.
        storages: largest first.
        signature: the unchecked state of the signature.
        wrapping: the .mar, or None.
        notes: descriptions of unreadable parts.
    """

    archive: Path
    manifest: Manifest
    sizes: dict[str, int]
    size: int
    storages: list[StorageRecord]
    signature: SignatureState
    wrapping: Wrapping | None
    notes: list[str]

    def count(self, action: Action) -> int:
        """Return the number of modules with this action."""
        return sum(done["action"] == action for done in self.manifest["modules"].values())

    def as_dict(self) -> dict[str, Any]:
        """Return a form for JSON; docs/commands.md describes its keys."""
        manifest = self.manifest
        return {
            "archive": str(self.archive),
            "mar": asdict(self.wrapping) if self.wrapping else None,
            "schema": manifest["schema"],
            "size": self.size,
            "entry": manifest["entry"],
            "made_with": manifest["made_with"],
            "counts": {action: self.count(action) for action in ("intern", "extern", "mock")},
            "modules": manifest["modules"],
            "externs": manifest["externs"],
            "globals": manifest["globals"],
            "data": manifest["data"],
            "inputs": manifest["inputs"],
            "self_test": manifest["self_test"],
            "serving": manifest["serving"],
            "request": manifest["request"],
            "signature": asdict(self.signature),
            "storages": [asdict(storage) for storage in self.storages],
            "members": self.sizes,
            "notes": self.notes,
        }


def inspect_archive(archive: Path, check_config: Callable[[Path, str], None] | None = None) -> Inspection:
    """Read an archive's manifest, sizes and pickles.

    Args:
        archive: a hermetic archive, or a .mar of any format that contains one.
        check_config: called with the .mar's configuration file, if any, and its name for messages. It raises
            InterpoolError if a server would refuse the file, which becomes a note.

    Raises:
        ArchiveError: missing, damaged, or without a manifest.
    """
    with open_archive(archive) as opened:
        storages, notes = read_storages(opened)
        if check_config is not None and opened.wrapping is not None:
            notes += _notes_on_configuration(archive, opened.wrapping, check_config)
        return Inspection(
            archive=archive,
            manifest=opened.manifest,
            sizes={name: record.size for name, record in opened.records.items()},
            size=opened.size,
            storages=storages,
            signature=signature_state(opened.records, opened.file),
            wrapping=opened.wrapping,
            notes=notes,
        )


def _notes_on_configuration(
    archive: Path, wrapping: Wrapping, check_config: Callable[[Path, str], None]
) -> list[str]:
    name = wrapping.model.get("configFile")
    if not name:
        return []
    with tempfile.TemporaryDirectory(prefix="interpool-") as folder:
        file = Path(folder, "configuration")
        content = read_beside(archive, wrapping, name)
        if content is not None:
            file.write_bytes(content)
        try:
            check_config(file, f"{archive} ({name} in it)")
        except InterpoolError as error:
            return [f"a server refuses its configuration: {error}"]
    return []
