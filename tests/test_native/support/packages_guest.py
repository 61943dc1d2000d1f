"""torch.package: torch's own samples of modules, packed with source of their own, read, and packed again."""

from __future__ import annotations

import io
import zipfile
import zlib
from typing import Any

import torch
from modules_guest import ask_module, made_modules
from own_samples import Entries, Samples
from torch.package import PackageExporter, PackageImporter, sys_importer

SOURCE = """
import torch
from . import names

class Model(torch.nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, *args, **kwargs):
        return self.inner(*args, **kwargs)

    def name(self):
        return names.of(self.inner)
"""

NAMES = """
def of(module):
    return type(module).__name__
"""


def _samples() -> Entries:
    for name, samples in made_modules():
        yield name, ((_packed(module), *given) for module, *given in samples)


def _packed(module: torch.nn.Module) -> bytes:
    """A package with source, whose object is a plain module."""
    file = io.BytesIO()
    with PackageExporter(file) as exporter:
        exporter.save_source_string("model", SOURCE, is_package=True)
        exporter.save_source_string("model.names", NAMES)
        exporter.save_pickle("data", "inner.pkl", module)
        exporter.save_text("data", "name.txt", type(module).__name__)
        exporter.save_binary("data", "bytes.bin", bytes(range(256)))
    return file.getvalue()


def _ask(package: bytes, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """What a module of the package answers, and the same module packed anew, with the members of that."""
    importer = PackageImporter(io.BytesIO(package))
    inner = importer.load_pickle("data", "inner.pkl")
    assert importer.load_binary("data", "bytes.bin") == bytes(range(256))
    model = importer.import_module("model").Model(inner)
    assert model.name() == importer.load_text("data", "name.txt")

    file = io.BytesIO()
    with PackageExporter(file, importer=(importer, sys_importer)) as exporter:
        exporter.intern("model.**")
        exporter.save_pickle("data", "model.pkl", model)
    anew = PackageImporter(io.BytesIO(file.getvalue()))
    again = anew.load_pickle("data", "model.pkl")
    assert type(again) is anew.import_module("model").Model
    with zipfile.ZipFile(file) as zipped:
        members = [f"{name} {zlib.crc32(zipped.read(name))}" for name in sorted(zipped.namelist())]
    return [again.name(), *members, *ask_module(model, args, kwargs), *ask_module(again, args, kwargs)]


repacked = Samples(_samples, _ask)
