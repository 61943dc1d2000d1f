"""Archives that no packer made: a manifest and little else."""

from __future__ import annotations

import json
import zipfile
from typing import TYPE_CHECKING

from interpool.native.archive_format import SCHEMA

if TYPE_CHECKING:
    from pathlib import Path


def archive_of(path: Path, imported_by: dict[str, list[tuple[str, int]]], **sources: str) -> Path:
    """An archive that consists of a manifest, and of the sources given."""
    modules = {
        name: {
            "action": "intern",
            "reason": "in the project",
            "imported_by": [{"module": user, "line": line} for user, line in users],
        }
        for name, users in imported_by.items()
    }
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
        "files": {},
    }
    with zipfile.ZipFile(path, "w") as file:
        for name, source in sources.items():
            file.writestr(f"archive/{name}.py", source)
        file.writestr("archive/interpool-archive/entry.pkl", b"N.")
        file.writestr("archive/.data/version", "6")
        file.writestr("archive/.data/extern_modules", "")
        file.writestr("archive/interpool-archive/manifest.json", json.dumps(manifest))
    return path
