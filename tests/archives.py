"""Makes archives for tests: real ones with torch.package, others member by member.

What is wrong in the zip's own structure is written byte by byte, by ``native.hostile.zips``.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import platform
import sys
import textwrap
import zipfile
from collections.abc import Callable, Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, cast

from torch.package import PackageExporter

from interpool.archiver_ext.appending import opened_to_append
from interpool.native.archive.format import (
    ENTRY_PACKAGE,
    ENTRY_RESOURCE,
    MANIFEST_PACKAGE,
    MANIFEST_RESOURCE,
    SCHEMA,
    SERVED_PLAINLY,
    Manifest,
    ModuleRecord,
)

PYTHON = platform.python_version()
MANIFEST_MEMBER = f"{MANIFEST_PACKAGE}/{MANIFEST_RESOURCE}"
TORCH = {"module": "torch", "distribution": "torch", "version": metadata.version("torch")}


def manifest_of(files: Mapping[str, bytes], /, **fields: Any) -> Manifest:
    """The manifest of an archive with these members, right except for what ``fields`` replace."""
    manifest = {
        "schema": SCHEMA,
        "entry": {"package": ENTRY_PACKAGE, "resource": ENTRY_RESOURCE, "kind": "module"},
        "made_with": {"python": PYTHON, "torch": TORCH["version"], "interpool": "0.1.0"},
        "externs": [],
        "modules": {},
        "globals": [],
        "data": [],
        "inputs": None,
        "self_test": None,
        "serving": SERVED_PLAINLY,
        "request": None,
        "files": {name: hashlib.sha256(content).hexdigest() for name, content in files.items()},
        **fields,
    }
    return cast("Manifest", manifest)


def module_records(
    externs: Iterable[str], interned: Mapping[str, Iterable[tuple[str, int]]]
) -> dict[str, ModuleRecord]:
    """What a manifest says of modules: names, and for interned ones who imports them, at which line."""
    return {
        **{
            name: {"action": "extern", "origin": "rules", "reason": "a test", "imported_by": []}
            for name in externs
        },
        **{
            name: {
                "action": "intern",
                "origin": "rules",
                "reason": "a test",
                "imported_by": [{"module": user, "line": line} for user, line in users],
            }
            for name, users in interned.items()
        },
    }


def write_archive(
    path: Path,
    modules: Mapping[str, ModuleRecord],
    members: Mapping[str, str] | None = None,
    *,
    signature: str | None = None,
    **fields: Any,
) -> Path:
    """An archive that no packer made: a manifest, and what readers insist on.

    Args:
        path: the file.
        modules: as in the manifest.
        members: content by name; the sources of interned modules are empty unless they are here.
        signature: the text of one.
        fields: of the manifest, instead of what is right.
    """
    externs = [name for name, done in modules.items() if done["action"] == "extern"]
    texts = {
        **{f"{name.replace('.', '/')}.py": "" for name in modules if name not in externs},
        f"{ENTRY_PACKAGE}/{ENTRY_RESOURCE}": "N.",
        ".data/version": "6",
        ".data/extern_modules": "\n".join(externs),
        **(members or {}),
    }
    manifest = manifest_of(
        {name: text.encode() for name, text in texts.items()}, **{"modules": modules, **fields}
    )
    texts[MANIFEST_MEMBER] = json.dumps(manifest)
    if signature is not None:
        texts[f"{MANIFEST_PACKAGE}/signature.json"] = signature
    with zipfile.ZipFile(path, "w") as file:
        for name, text in texts.items():
            file.writestr(f"archive/{name}", text)
    return path


def archive_of(path: Path, imported_by: Mapping[str, Iterable[tuple[str, int]]], **sources: str) -> Path:
    """An archive of interned modules that import each other: importers and their lines."""
    members = {f"{name}.py": source for name, source in sources.items()}
    return write_archive(path, module_records((), imported_by), members)


def build_package(
    path: Path,
    modules: dict[str, str],
    make: str,
    *,
    extern: tuple[str, ...] = (),
    texts: dict[str, str] | None = None,
) -> Path:
    """Packs ``make()`` as ``model/model.pkl``, all of ``modules`` interned, with torch.package alone.

    Args:
        path: the archive to write.
        modules: source by file name, such as ``pkg/net.py``.
        make: the object's maker, such as ``pkg.net:make``.
        extern: further modules to take from where the archive is loaded.
        texts: further resources of the package ``model``, by name.
    """
    source = path.with_suffix(".src")
    for name, text in modules.items():
        file = source / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(text))
    tops = {name.removesuffix(".py").split("/")[0] for name in modules}
    module, _, function = make.partition(":")
    _forget(tops)
    sys.path.insert(0, str(source))
    importlib.invalidate_caches()
    try:
        made = getattr(importlib.import_module(module), function)()
        with PackageExporter(path) as exporter:
            exporter.extern(["torch", "torch.**", *extern])
            exporter.intern([f"{top}.**" for top in tops])
            exporter.save_pickle("model", "model.pkl", made)
            for name, text in (texts or {}).items():
                exporter.save_text("model", name, text)
    finally:
        sys.path.remove(str(source))
        _forget(tops)
    return path


def _forget(tops: set[str]) -> None:
    for name in list(sys.modules):
        if name.split(".")[0] in tops:
            del sys.modules[name]


SCALE = """
import torch

class Scale(torch.nn.Module):
    def __init__(self, factor, size=4):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((size,), float(factor)))

    @torch.no_grad()
    def forward(self, x):
        return self.weight[: x.numel()] * x
"""


def build_scale(path: Path, factor: float, size: int = 4) -> Path:
    """A model that multiplies up to ``size`` numbers by ``factor``, of ``4 * size`` bytes of weights."""
    maker = f"\ndef make():\n    return Scale({factor}, {size})\n"
    return build_package(path, {"scale_model.py": SCALE + maker}, "scale_model:make")


def add_members(path: Path, members: Mapping[str, bytes]) -> Path:
    """Adds members to an archive, below its root folder."""
    with opened_to_append(path) as archive:
        root = archive.namelist()[0].partition("/")[0]
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(f"{root}/{name}"), content)
    return path


def add_manifest(path: Path, manifest: Mapping[str, Any]) -> Path:
    """Adds a manifest to an archive that has none."""
    return add_members(path, {MANIFEST_MEMBER: json.dumps(manifest).encode()})


def read_members(path: Path) -> dict[str, bytes]:
    """The content of an archive's members, by their names below the root folder."""
    with zipfile.ZipFile(path) as archive:
        return {entry.filename.partition("/")[2]: archive.read(entry) for entry in archive.infolist()}


def rewrite(
    source: Path,
    target: Path,
    *,
    compression: int = zipfile.ZIP_STORED,
    change: Callable[[str, bytes], bytes | None] = lambda _, content: content,
) -> Path:
    """Copies an archive member by member; ``change`` gives each one's new content, None to leave it out."""
    with zipfile.ZipFile(source) as before, zipfile.ZipFile(target, "w", compression) as after:
        for entry in before.infolist():
            content = change(entry.filename.partition("/")[2], before.read(entry))
            if content is not None:
                after.writestr(zipfile.ZipInfo(entry.filename), content, compression)
    return target
