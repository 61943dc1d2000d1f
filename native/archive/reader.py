"""Reads hermetic archives and checks structure, manifest and digests, in this order.

Packing, verification and serving use it before they unpickle or run anything. Standard library only: private
interpreters use it, too.
"""

from __future__ import annotations

import hashlib
import sys
from typing import IO, Final, NoReturn

from interpool.native.archive.format import (
    MANIFEST_PACKAGE,
    MANIFEST_RESOURCE,
    MOST_MANIFEST_BYTES,
    SIGNATURE_RESOURCE,
    Manifest,
    is_dotted_name,
    member_name,
    parse_manifest,
)
from interpool.native.archive.member_names import checked_names
from interpool.native.archive.typed_json import shown
from interpool.native.archive.zip_structure import Record, read_member, read_structure
from interpool.native.errors import DigestError, ManifestError, StructureError

__all__ = ["Record", "check_digests", "digest_of", "read_manifest", "read_member", "read_records"]

MANIFEST_MEMBER: Final = f"{MANIFEST_PACKAGE}/{MANIFEST_RESOURCE}"
SIGNATURE_MEMBER: Final = f"{MANIFEST_PACKAGE}/{SIGNATURE_RESOURCE}"

_IN_FOLDER = "_"  # name of a hypothetical file in an empty folder
_VERSION, _EXTERNS, _BYTE_ORDER = ".data/version", ".data/extern_modules", "byteorder"
_MOST_EXTERN_BYTES = 1 << 20
_CHUNK = 256 << 10  # fits into a core's cache between reading and hashing


def read_records(path: str, file: IO[bytes]) -> dict[str, Record]:
    """Return the members of a torch.package archive, by name.

    Reads the zip's directory and headers, and torch.package's own small members, but no content.

    Args:
        path: the archive's path as the user knows it; messages name it.
        file: the open archive.

    Raises:
        StructureError: it is not a zip, truncated, not a torch.package, or breaks a rule.
        ArchiveError: it cannot be read.
    """
    try:
        records = read_structure(path, file)
        for needed in (_VERSION, _EXTERNS):
            if needed not in records:
                raise StructureError(
                    f"{path} is a zip, but not a torch.package archive: {needed} is missing. "
                    "Make it with `interpool pack`.",
                    "no-package",
                )
        _check_version(path, file, records)
        _externs(path, file, records)
    except OSError as error:
        raise _unreadable(path, error) from error
    return records


def read_manifest(path: str, file: IO[bytes], records: dict[str, Record]) -> Manifest | None:
    """Return the archive's manifest, checked for consistency with the members' names and the externs.

    Args:
        path: the archive's path as the user knows it; messages name it.
        file: the open archive.
        records: the result of ``read_records``.

    Returns:
        None for a torch.package without a manifest.

    Raises:
        ManifestError: a packer would not write it, or it belongs to another archive.
        StructureError: it is damaged.
        ArchiveError: it cannot be read.
    """
    record = records.get(MANIFEST_MEMBER)
    if record is None:
        return None
    if record.size > MOST_MANIFEST_BYTES:
        raise ManifestError(
            f"{path}: its manifest has {record.size:,} bytes; {MOST_MANIFEST_BYTES:,} are allowed",
            "manifest-size",
        )
    try:
        manifest = parse_manifest(read_member(path, file, record), path)
        externs = _externs(path, file, records)
    except OSError as error:
        raise _unreadable(path, error) from error
    _check_members(path, records, manifest)
    _check_modules(path, records, manifest, externs)
    return manifest


def check_digests(path: str, file: IO[bytes], records: dict[str, Record], manifest: Manifest) -> None:
    """Compare every member's SHA-256 with the manifest; reads the whole archive once.

    Hashing releases the GIL.

    Args:
        path: the archive's path as the user knows it; messages name it.
        file: the open archive.
        records: the result of ``read_records``.
        manifest: the result of ``read_manifest``.

    Raises:
        DigestError: names the first member that differs, in the order of the zip.
        StructureError: a member is damaged.
        ArchiveError: it cannot be read.
    """
    try:
        for name, record in records.items():
            if name in (MANIFEST_MEMBER, SIGNATURE_MEMBER):
                continue
            if digest_of(path, file, record) != manifest["files"].get(name):
                raise DigestError(
                    f"{path}: {name} is not what the manifest says; it was changed or damaged after "
                    "packing. Get the archive again from where it was made, or pack it again",
                    "digest",
                )
    except OSError as error:
        raise _unreadable(path, error) from error


def digest_of(path: str, file: IO[bytes], record: Record) -> str:
    """Return the SHA-256 of a member's content, in hex.

    Args:
        path: the archive's path, for messages.
        file: the open archive.
        record: the member.

    Raises:
        StructureError: it is damaged.
        OSError: it cannot be read.
    """
    digest = hashlib.sha256()
    if not record.stored:
        digest.update(read_member(path, file, record))
        return digest.hexdigest()
    file.seek(record.offset)
    left = record.size
    buffer = memoryview(bytearray(min(left, _CHUNK)))
    while left:
        count = file.readinto(buffer[: min(left, _CHUNK)])  # type: ignore[attr-defined]
        if not count:
            raise StructureError(f"{path} was cut short in {record.name}. Copy it again.", "size")
        digest.update(buffer[:count])
        left -= count
    return digest.hexdigest()


def _check_version(path: str, file: IO[bytes], records: dict[str, Record]) -> None:
    for name, good in ((_VERSION, _is_version), (_BYTE_ORDER, _is_byte_order)):
        record = records.get(name)
        if record is None:
            continue
        content = read_member(path, file, record) if record.size <= 32 else b""
        if not good(content.strip(b"\n")):
            raise StructureError(
                f"{path}: its {name} is not one that this machine's torch can read. Pack it again with "
                "`interpool pack`.",
                "version",
            )


def _is_version(content: bytes) -> bool:
    return content.isdigit() and len(content) <= 4


def _is_byte_order(content: bytes) -> bool:
    return content == sys.byteorder.encode()


def _externs(path: str, file: IO[bytes], records: dict[str, Record]) -> list[str]:
    """Return the external modules that torch.package has recorded."""
    record = records[_EXTERNS]
    data = read_member(path, file, record) if record.size <= _MOST_EXTERN_BYTES else b"\xff"
    try:
        names = [name for name in data.decode("utf-8").split("\n") if name]
    except UnicodeDecodeError:
        names = [""]
    if not all(map(is_dotted_name, names)):
        raise StructureError(
            f"{path}: its {_EXTERNS} is not a list of modules. Pack it again with `interpool pack`.",
            "extern-modules",
        )
    return names


def _check_members(path: str, records: dict[str, Record], manifest: Manifest) -> None:
    """Check that the manifest lists exactly the existing members."""
    listed = manifest["files"].keys()
    present = records.keys() - {MANIFEST_MEMBER, SIGNATURE_MEMBER}
    for name in sorted(listed - present):
        _lies(path, "files", f"lists {shown(name)}, which is not in the archive")
    for name in sorted(present - listed):
        _lies(path, "files", f"does not list {name}, which is in the archive")
    folders = [name for name in manifest["data"] if name.endswith("/")]
    for name in manifest["data"]:
        if name not in present and name not in folders:
            _lies(path, "data", f"names the data file {shown(name)}, which is not in the archive")
    if folders:
        # Empty folders are no members but are created on disk, so a file in each must have a valid name.
        places = [*present, *(f"{name}{_IN_FOLDER}" for name in folders)]
        checked_names(path, [(f"_/{name}".encode(errors="replace"), True) for name in places])
    named = {what: manifest[what] for what in ("entry", "self_test", "request")}
    for what, where in named.items():
        if where is None:
            continue
        name = member_name(where["package"], where["resource"])
        if name not in present:
            _lies(path, what, f"names {shown(name)} as its {what}, which is not in the archive")


def _check_modules(path: str, records: dict[str, Record], manifest: Manifest, externs: list[str]) -> None:
    """Check that torch.package will treat each module as the manifest says."""
    modules = manifest["modules"]
    stated = {name for name, module in modules.items() if module["action"] == "extern"}
    for name in sorted(stated.symmetric_difference(externs)):
        _lies(
            path,
            "externs",
            f"and torch.package's {_EXTERNS} disagree whether {name} is taken from the server",
        )
    for name, module in modules.items():
        source = name.replace(".", "/")
        inside = f"{source}.py" in records or f"{source}/__init__.py" in records
        if inside != (module["action"] != "extern"):
            has = "has" if inside else "has no"
            _lies(path, "modules", f"says {module['action']!r} of {name}, and the archive {has} source of it")


def _lies(path: str, rule: str, what: str) -> NoReturn:
    raise ManifestError(
        f"{path}: its manifest {what}; it is of another archive, or was written by hand. Pack it again",
        rule,
    )


def _unreadable(path: str, error: OSError) -> StructureError:
    return StructureError(f"{path} cannot be read: {error.strerror or error}.", "unreadable")
