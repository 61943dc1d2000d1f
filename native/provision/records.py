"""Verdicts on original files, and keys that identify the files.

A record says whether a file must be private, and the state of its needed objects for that verdict. It is
stored in the cache as JSON, under a key computed from the file's ``stat`` and first page.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from interpool.native.errors import ProvisioningError
from interpool.native.provision.store import new_file

if TYPE_CHECKING:
    from pathlib import Path

# Templates contain this in place of the slot's marker. It has equal length, so a slot copy differs from the
# template only in these bytes.
MARKER = "ipslot0000"
# Bytes of an original that count in its key: they contain segment sizes and usually the build ID.
_HEAD = 4096


def marker(slot: int) -> bytes:
    """Return the marker of slot ``slot``'s own copies."""
    return f"{MARKER[:-4]}{slot:04}".encode()


def path_hash(real: str) -> str:
    """Return eight hexadecimal digits that distinguish files of the same name."""
    return hashlib.sha256(os.fsencode(real)).hexdigest()[:8]


def file_key(real: str, stat: os.stat_result) -> str:
    """Return the name of an original's directories in the cache.

    Path, size, modification time, and a hash of its first page.

    Times are in whole seconds, because layers of container images keep no fractions. The hash distinguishes
    builds with the same time.

    Args:
        real: the original's resolved path.
        stat: its status.

    Raises:
        ProvisioningError: the original cannot be read.
    """
    try:
        with open(real, "rb", buffering=0) as file:
            head = file.read(_HEAD)
    except OSError as error:
        raise ProvisioningError(f"cannot read {real}: {error.strerror}") from error
    begins = hashlib.sha256(head).hexdigest()[:8]
    return f"{path_hash(real)}-{stat.st_size:x}-{stat.st_mtime_ns // 10**9:x}-{begins}"


def template_soname(real: str) -> str:
    """Return the SONAME of the original's template; slot copies differ in the marker."""
    return f"{MARKER}-{path_hash(real)}-{os.path.basename(real)}"


@dataclass(frozen=True)
class Record:
    """The verdict on one original file.

    Attributes:
        path: the original's resolved path.
        private: whether each slot needs its own copy.
        needs: the objects that it needs, and whether each was private for this verdict.
        marks: file offsets of the slot marker in the template, in bytes.
        size: the template's size in bytes.
    """

    path: str
    private: bool
    needs: dict[str, bool] = field(default_factory=dict)
    marks: tuple[int, ...] = ()
    size: int = 0

    @property
    def variant(self) -> str:
        """Distinguishes templates of one original that need different private objects."""
        private = sorted(path for path, is_private in self.needs.items() if is_private)
        return path_hash("\0".join(private))

    def save(self, directory: Path) -> None:
        """Write the record; the caller has the lock.

        Raises:
            ProvisioningError: it cannot be written.
        """
        with new_file(directory / "record.json") as draft:
            draft.write_text(json.dumps(asdict(self)))


def load_record(directory: Path) -> Record | None:
    """Return the record in ``directory``; None if it is missing or damaged."""
    try:
        fields = json.loads((directory / "record.json").read_text())
        return Record(**{**fields, "marks": tuple(fields["marks"])})
    except (OSError, ValueError, TypeError, KeyError):
        return None
