"""Adds interpool's members to a finished torch.package. Imports no torch."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING

from interpool.archiver_ext.appending import drop_last_member, opened_to_append, write_member
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

_SUFFIXES = {"application/json": "json", "text/plain": "txt"}


def manifest_text(manifest: Manifest) -> bytes:
    """Return a manifest's bytes in an archive."""
    return f"{json.dumps(manifest, indent=1, ensure_ascii=False)}\n".encode()


def add_request(archive: Path, request: FoundRequest) -> None:
    """Add a working request to an archive whose last member is its manifest.

    Args:
        archive: the file, changed in place.
        request: the request.

    Raises:
        ArchiveError: the archive is damaged.
        OSError: it cannot be read or written.
    """
    with archive.open("rb") as opened:
        manifest = read_manifest(str(archive), opened, read_records(str(archive), opened))
    assert manifest is not None, "the build has written one"
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
        drop_last_member(file)  # the manifest
        write_member(file, name, request.body)
        write_member(file, MANIFEST_MEMBER, manifest_text(manifest))
