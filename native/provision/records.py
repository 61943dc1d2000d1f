"""Verdicts on original files, and what identifies them.

A record says whether a file must be private and with which needed objects that
was decided. It lies in the cache as JSON, under a key that a ``stat`` and the file's first page give.
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

# Stands in a template where a slot copy has its number. Of equal length, so that
# a slot copy differs from the template in these bytes only.
MARKER = "ipslot0000"
# As much of an original as counts in its key: linkers put sizes of segments, and the build ID, there.
_HEAD = 4096


def marker(slot: int) -> bytes:
    """The marker of slot ``slot``'s own copies."""
    return f"{MARKER[:-4]}{slot:04}".encode()


def path_hash(real: str) -> str:
    """Eight hexadecimal digits that tell files of one name apart."""
    return hashlib.sha256(os.fsencode(real)).hexdigest()[:8]


def file_key(real: str, stat: os.stat_result) -> str:
    """The name of an original's directories in the cache: path, size, second of change, and how it begins.

    Layers of container images keep no more of a time than its second. The beginning tells builds of one
    second apart, and builds that were given a fixed time.

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
    """The SONAME of the original's template, and of its slot copies except for the marker."""
    return f"{MARKER}-{path_hash(real)}-{os.path.basename(real)}"


@dataclass(frozen=True)
class Record:
    """The verdict on one original file.

    Attributes:
        path: the original's real path.
        private: whether each slot needs a copy of its own.
        needs: the objects that it needs, and whether each was private then.
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
        """Tells templates of one original apart that name different private objects."""
        private = sorted(path for path, is_private in self.needs.items() if is_private)
        return path_hash("\0".join(private))

    def save(self, directory: Path) -> None:
        """Write the record; the caller holds the lock."""
        with new_file(directory / "record.json") as draft:
            draft.write_text(json.dumps(asdict(self)))


def load_record(directory: Path) -> Record | None:
    """The record that lies in ``directory``; None if there is none, or a damaged one."""
    try:
        fields = json.loads((directory / "record.json").read_text())
        return Record(**{**fields, "marks": tuple(fields["marks"])})
    except (OSError, ValueError, TypeError, KeyError):
        return None
