"""Creates an archive's manifest and appends it to the finished torch.package."""

from __future__ import annotations

import os
import platform
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from interpool.archiver_ext.appending import opened_to_append, write_member
from interpool.archiver_ext.packing.decide.distributions import distribution_of
from interpool.archiver_ext.packing.dotted_names import top_of
from interpool.archiver_ext.packing.write.members import manifest_text
from interpool.archiver_ext.packing.write.pickle_globals import pickle_globals
from interpool.native.archive.format import (
    ENTRY_PACKAGE,
    ENTRY_RESOURCE,
    SCHEMA,
    EntryKind,
    Extern,
    Importer,
    MadeWith,
    Manifest,
    ModuleRecord,
    SelfTest,
    Serving,
)
from interpool.native.archive.reader import MANIFEST_MEMBER, Record, digest_of, read_records

if TYPE_CHECKING:
    from collections.abc import Mapping

    from interpool.archiver_ext.packing.decide.rules import Verdict


def append_manifest(
    archive: Path,
    kind: EntryKind,
    verdicts: dict[str, Verdict],
    files: dict[str, str],
    *,
    imported_by: Mapping[str, list[Importer]],
    data: list[str],
    inputs: Any,
    self_test: SelfTest | None,
    serving: Serving,
) -> Manifest:
    """Append the manifest to an otherwise complete torch.package.

    Args:
        archive: the file, closed by its exporter; changed in place.
        kind: of the entry.
        verdicts: the decision for each module, by dotted name.
        files: the result of ``digests``.
        imported_by: the importers of each module (see interpool.archiver_ext.packing.write.graph).
        data: members that code finds through ``__file__``.
        inputs: the example inputs' signature, for JSON.
        self_test: the record of the self-test, if there is one.
        serving: how to serve the entry.

    Returns:
        The written manifest.

    Raises:
        StructureError: the archive is damaged.
        OSError: it cannot be read or written.
    """
    taken = pickle_globals(archive, {name for name, done in verdicts.items() if done.action == "extern"})
    with opened_to_append(archive) as file:
        manifest: Manifest = {
            "schema": SCHEMA,
            "entry": {"package": ENTRY_PACKAGE, "resource": ENTRY_RESOURCE, "kind": kind},
            "made_with": _versions(),
            "externs": _externs(verdicts),
            "modules": _modules(verdicts, imported_by),
            "globals": taken,
            "data": data,
            "inputs": inputs,
            "self_test": self_test,
            "serving": serving,
            "request": None,
            "files": files,
        }
        write_member(file, MANIFEST_MEMBER, manifest_text(manifest))
    return manifest


def digests(archive: Path) -> dict[str, str]:
    """Return SHA-256, in hex, of each member's content, by its name below the root directory.

    Hashes several members in parallel: neither reading nor hashing needs the GIL.

    Raises:
        ArchiveError: the archive is damaged.
        OSError: it cannot be read.
    """
    shown = str(archive)
    with archive.open("rb") as file:
        records = read_records(shown, file)

    def one(record: Record) -> str:
        with archive.open("rb") as own:
            return digest_of(shown, own, record)

    with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as threads:
        return dict(zip(records, threads.map(one, records.values()), strict=True))


def _versions() -> MadeWith:
    try:
        own = metadata.version("interpool")
    except metadata.PackageNotFoundError:
        own = "not installed"
    return {
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "interpool": own,
    }


def _externs(verdicts: dict[str, Verdict]) -> list[Extern]:
    modules: dict[str, list[str]] = defaultdict(list)
    for name, verdict in verdicts.items():
        if verdict.action == "extern":
            modules[top_of(name)].append(name)
    externs: list[Extern] = []
    for top in sorted(modules):
        # Distributions may share a namespace package; only those of imported modules are needed.
        inside = {distribution_of(name) for name in modules[top] if name != top} or {distribution_of(top)}
        found = [
            (each.name, each.version) if each.from_index or top in ("torch", "numpy") else ("", "")
            for each in inside
            if each is not None
        ]
        externs += [
            {"module": top, "distribution": name, "version": version} for name, version in sorted(set(found))
        ]
    return externs


def _modules(
    verdicts: dict[str, Verdict], imported_by: Mapping[str, list[Importer]]
) -> dict[str, ModuleRecord]:
    return {
        name: {
            "action": verdict.action,
            "origin": verdict.origin,
            "reason": verdict.reason,
            "imported_by": imported_by.get(name, []),
        }
        for name, verdict in sorted(verdicts.items())
        if verdict.action != "deny"
    }
