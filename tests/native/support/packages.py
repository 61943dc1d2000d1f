"""Makes torch.package archives for tests, with torch.package alone."""

from __future__ import annotations

import hashlib
import importlib
import sys
import textwrap
import zipfile
from collections.abc import Callable
from pathlib import Path

from torch.package import PackageExporter

from interpool.native.archive.format import SCHEMA, Manifest


def build_package(
    path: Path,
    modules: dict[str, str],
    make: str,
    *,
    extern: tuple[str, ...] = (),
    texts: dict[str, str] | None = None,
) -> Path:
    """Packs ``make()`` as ``model/model.pkl``, all of ``modules`` interned.

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


def manifest_with(data: dict[str, bytes]) -> Manifest:
    """The manifest of an archive with these data files, by name."""
    return {
        "schema": SCHEMA,
        "entry": {"package": "model", "resource": "model.pkl", "kind": "callable"},
        "made_with": {"python": "3.11.0", "torch": "2.13.0", "interpool": "0"},
        "externs": [],
        "modules": {},
        "globals": [],
        "data": sorted(data),
        "inputs": None,
        "self_test": None,
        "files": {name: hashlib.sha256(content).hexdigest() for name, content in data.items()},
    }


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
