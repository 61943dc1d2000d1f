"""Archives that no packer made: a manifest, and what readers insist on."""

from __future__ import annotations

import hashlib
import json
import zipfile
from typing import TYPE_CHECKING, Any

from interpool.native.archive.format import SCHEMA

if TYPE_CHECKING:
    from pathlib import Path


def write_archive(
    path: Path, modules: dict[str, dict[str, Any]], members: dict[str, str] | None = None, **changes: Any
) -> Path:
    """Write an archive of these modules.

    Args:
        path: the file.
        modules: as in the manifest.
        members: content by name; the sources of modules are empty unless they are here.
        changes: to the manifest.
    """
    externs = [name for name, done in modules.items() if done["action"] == "extern"]
    content = {
        **{f"{name.replace('.', '/')}.py": "" for name in modules if name not in externs},
        "interpool-archive/entry.pkl": "N.",
        ".data/version": "6",
        ".data/extern_modules": "\n".join(externs),
        **(members or {}),
    }
    signature = content.pop("interpool-archive/signature.json", None)
    manifest = {
        "schema": SCHEMA,
        "entry": {"package": "interpool-archive", "resource": "entry.pkl", "kind": "module"},
        "made_with": {"python": "3.11.7", "torch": "2.13.0", "interpool": "0.1.0"},
        "externs": [],
        "modules": modules,
        "globals": [],
        "data": [],
        "inputs": None,
        "self_test": None,
        "files": {name: hashlib.sha256(text.encode()).hexdigest() for name, text in content.items()},
        **changes,
    }
    content["interpool-archive/manifest.json"] = json.dumps(manifest)
    if signature is not None:
        content["interpool-archive/signature.json"] = signature
    with zipfile.ZipFile(path, "w") as file:
        for name, text in content.items():
            file.writestr(f"archive/{name}", text)
    return path


def archive_of(path: Path, imported_by: dict[str, list[tuple[str, int]]], **sources: str) -> Path:
    """Write an archive of interned modules that import each other: importers and their lines."""
    modules = {
        name: {
            "action": "intern",
            "origin": "project",
            "reason": "in the project",
            "imported_by": [{"module": user, "line": line} for user, line in users],
        }
        for name, users in imported_by.items()
    }
    return write_archive(path, modules, {f"{name}.py": source for name, source in sources.items()})
