"""Adds interpool's members to a finished torch.package. Imports no torch."""

from __future__ import annotations

import hashlib
import json
import zipfile
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from interpool.archiver_ext.appending import opened_to_append
from interpool.native.archive.format import (
    MANIFEST_PACKAGE,
    REQUEST_RESOURCE,
    Manifest,
    RequestRecord,
    member_name,
)
from interpool.native.archive.reader import MANIFEST_MEMBER, read_manifest, read_records

if TYPE_CHECKING:
    from interpool.archiver_ext.verify.serving_side import FoundRequest

# A fixed time, as in torch.package.
_NO_DATE = (1980, 1, 1, 0, 0, 0)
_SUFFIXES = {"application/json": "json", "text/plain": "txt"}


def manifest_text(manifest: Manifest) -> bytes:
    """Return a manifest's bytes in an archive."""
    return f"{json.dumps(manifest, indent=1, ensure_ascii=False)}\n".encode()


def write_member(file: zipfile.ZipFile, name: str, content: bytes) -> None:
    """Append a member; ``name`` is below the zip's root folder.

    Args:
        file: the open zip.
        name: of the member.
        content: its bytes.
    """
    root = PurePosixPath(file.namelist()[0]).parts[0]
    file.writestr(zipfile.ZipInfo(f"{root}/{name}", _NO_DATE), content)


def add_request(archive: Path, request: FoundRequest) -> None:
    """Add a working request to an archive whose last member is its manifest.

    Args:
        archive: the file, changed in place.
        request: the request.
    """
    with archive.open("rb") as opened:
        manifest = read_manifest(str(archive), opened, read_records(str(archive), opened))
    assert manifest is not None, "whoever built it has written one"
    suffix = _SUFFIXES.get(request.content_type.partition(";")[0], "bin")
    record: RequestRecord = {
        "package": MANIFEST_PACKAGE,
        "resource": f"{REQUEST_RESOURCE}.{suffix}",
        "content_type": request.content_type,
        "part": request.part,
        "answer_bytes": request.answer_bytes,
    }
    name = member_name(record["package"], record["resource"])
    manifest["files"][name] = hashlib.sha256(request.body).hexdigest()
    manifest["request"] = record
    manifest["serving"]["batches"] = request.batches
    manifest["serving"]["parts"] = request.parts
    with opened_to_append(archive) as file:
        last = file.filelist.pop()
        del file.NameToInfo[last.filename]
        file.start_dir = last.header_offset  # overwrite the file from here on
        write_member(file, name, request.body)
        write_member(file, MANIFEST_MEMBER, manifest_text(manifest))
