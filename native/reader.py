"""The one reader of hermetic archives: what their structure must be.

Used before anything in an archive is unpickled or run, by whoever packs,
verifies or serves it.
"""

from __future__ import annotations

import hashlib
import os
import struct
import zipfile
from dataclasses import dataclass
from typing import IO

from interpool.native.archive_format import (
    MANIFEST_PACKAGE,
    MANIFEST_RESOURCE,
    SIGNATURE_RESOURCE,
    Manifest,
    parse_manifest,
)
from interpool.native.errors import ArchiveError, DigestError, ManifestError

_LOCAL_HEADER = struct.Struct("<4sHHHHHIIIHH")


@dataclass(frozen=True)
class Record:
    """One file of an archive.

    Attributes:
        name: its name below the archive's root folder.
        offset: where its bytes start in the archive file.
        size: in bytes.
        stored: whether the bytes lie there as they are, not deflated.
    """

    name: str
    offset: int
    size: int
    stored: bool


def read_records(path: str, file: IO[bytes]) -> dict[str, Record]:
    """The files of a torch.package archive, by name.

    Args:
        path: the archive, as the user knows it; messages name it.
        file: the archive, opened.

    Raises:
        ArchiveError: it is not a zip, cut short, or not a torch.package.
    """
    try:
        return _read(path, file)
    except OSError as error:
        raise ArchiveError(f"{path} cannot be read: {error.strerror or error}.") from error


def _read(path: str, file: IO[bytes]) -> dict[str, Record]:
    try:
        archive = zipfile.ZipFile(file)
        entries = archive.infolist()
    except (zipfile.BadZipFile, ValueError, NotImplementedError, struct.error) as error:
        raise ArchiveError(
            f"{path} is not a zip archive, or was cut short ({error}). Copy it again, or make it anew "
            "with `interpool pack`."
        ) from error
    size = os.fstat(file.fileno()).st_size
    records: dict[str, Record] = {}
    root = entries[0].filename.partition("/")[0] if entries else ""
    for entry in entries:
        name = _below_root(path, root, entry.filename)
        if name in records:
            raise ArchiveError(f"{path} holds {name} twice; make it anew with `interpool pack`.")
        offset = _data_offset(path, file, entry)
        if offset + entry.compress_size > size:
            raise ArchiveError(f"{path} was cut short: {name} ends beyond the file. Copy it again.")
        stored = entry.compress_type == zipfile.ZIP_STORED
        records[name] = Record(name, offset, entry.file_size, stored)
    for needed in (".data/version", ".data/extern_modules"):
        if needed not in records:
            raise ArchiveError(
                f"{path} is a zip, but not a torch.package archive: {needed} is missing. "
                "Make it with `interpool pack`."
            )
    return records


def _below_root(path: str, root: str, name: str) -> str:
    first, _, rest = name.partition("/")
    parts = rest.split("/")
    strange = first != root or root in ("", ".", "..") or "\\" in name or "\0" in name
    if strange or not rest or not {"", ".", ".."}.isdisjoint(parts):
        raise ArchiveError(
            f"{path} holds a file by the name {name!r}, which torch.package never writes: names are "
            "relative, below one root folder, without '..'."
        )
    return rest


def _data_offset(path: str, file: IO[bytes], entry: zipfile.ZipInfo) -> int:
    file.seek(entry.header_offset)
    raw = file.read(_LOCAL_HEADER.size)
    if len(raw) != _LOCAL_HEADER.size or raw[:4] != b"PK\x03\x04":
        raise ArchiveError(f"{path} is damaged at {entry.filename}. Copy it again.")
    fields = _LOCAL_HEADER.unpack(raw)
    return entry.header_offset + _LOCAL_HEADER.size + int(fields[9]) + int(fields[10])


# --- verify: a simple stand-in until the hardened reader is merged; take the reader's version of
# --- everything below this line, which has the same two signatures.

_CHUNK = 1 << 20
_MANIFEST = f"{MANIFEST_PACKAGE}/{MANIFEST_RESOURCE}"
_UNLISTED = {_MANIFEST, f"{MANIFEST_PACKAGE}/{SIGNATURE_RESOURCE}"}


def read_manifest(path: str, file: IO[bytes], records: dict[str, Record]) -> Manifest | None:
    """The archive's manifest; None for a torch.package without one."""
    record = records.get(_MANIFEST)
    if record is None:
        return None
    if not record.stored:
        raise ManifestError(f"{path}: its manifest is compressed", "manifest")
    return parse_manifest(os.pread(file.fileno(), record.size, record.offset), path)


def check_digests(path: str, file: IO[bytes], records: dict[str, Record], manifest: Manifest) -> None:
    """Raises DigestError unless the members are the manifest's, with the content that it says."""
    listed = manifest["files"]
    for name in sorted(set(records) - _UNLISTED - set(listed)):
        raise DigestError(f"{path} holds {name}, which its manifest does not list", "unlisted")
    for name, expected in listed.items():
        record = records.get(name)
        if record is None:
            raise DigestError(f"{path} lacks {name}, which its manifest lists", "missing")
        if not record.stored:
            raise DigestError(f"{path}: {name} is compressed", "compressed")
        digest = hashlib.sha256()
        file.seek(record.offset)
        left = record.size
        while left:
            chunk = file.read(min(_CHUNK, left))
            if not chunk:
                raise DigestError(f"{path} was cut short at {name}", "digest")
            digest.update(chunk)
            left -= len(chunk)
        if digest.hexdigest() != expected:
            raise DigestError(
                f"{path}: {name} is not what it was when the archive was made (SHA-256 "
                f"{digest.hexdigest()}, not {expected}). Copy it again, or make it anew",
                "digest",
            )
