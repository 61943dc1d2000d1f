"""Archives that have, or lack, what proves them: for tests of verify, sign and the server."""

from __future__ import annotations

import struct
import subprocess
import sys
import zipfile
import zlib
from pathlib import Path
from typing import Any

import torch
from archives import PYTHON, add_manifest, manifest_of, module_records, read_members
from torch.package import PackageExporter

from interpool.archiver_ext.packing.write.pickle_globals import pickle_globals
from interpool.native.archive.format import (
    ENTRY_PACKAGE,
    ENTRY_RESOURCE,
    MANIFEST_PACKAGE,
    SELF_TEST_RESOURCE,
)

TORCH = {"module": "torch", "distribution": "torch", "version": torch.__version__}
MODULE = "proving_model"
# CANARY becomes the path of a file that says that code of the archive ran.
SOURCE = """
import torch

with open({canary!r}, "a") as canary:
    canary.write("source\\n")


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.arange(6.0).reshape(2, 3))

    def forward(self, x):
        return x @ self.weight.T * 1.0


class Dies:
    def __call__(self, x):
        import os
        os._exit(7)


class Raises:
    def __call__(self, x):
        raise ValueError(f"cannot use {{x}}")


class Handler:
    def initialize(self, context):
        self.name = context.model_name

    def handle(self, data, context):
        return [{{"name": self.name, "at": str(context.system_properties["model_dir"])}} for _ in data]


class Replaces(Handler):
    def initialize(self, context):
        super().initialize(context)
        self.handle = lambda data, context: ["replaced"] * len(data)


class Counts(Handler):
    seen = 0

    def handle(self, data, context):
        self.seen += len(data)
        return [str(self.seen)] * len(data)


class TakesGpu(Handler):
    def initialize(self, context):
        self.gpu = context.system_properties["gpu_id"]
        takes = torch.cuda.is_available() and self.gpu is not None
        self.weight = torch.ones(1, device=f"cuda:{{self.gpu}}" if takes else "cpu")

    def handle(self, data, context):
        return [f"{{self.gpu}} {{self.weight.device}}"] * len(data)


class NeedsGpu(Handler):
    def initialize(self, context):
        self.weight = torch.ones(1).cuda()


class DefaultsToGpu(Handler):
    def initialize(self, context):
        torch.set_default_device("cuda")


# Raises what torch does of an error of CUDA's, with its number.
class LosesGpu:
    def __call__(self, x):
        number = int(x)
        if not number:
            return "served"
        error = torch.AcceleratorError(f"CUDA error: number {{number}}\\nCompile with more")
        error.error_code = number
        raise error
"""


def build_archive(
    path: Path,
    canary: Path,
    *,
    entry: str = "Model",
    expected: Any = None,
    args: tuple[Any, ...] = (torch.ones(3),),
    seed: int = 0,
    **manifest: Any,
) -> Path:
    """A packed model with its own source, which writes to ``canary`` when it is imported.

    Args:
        path: of the archive; its stem is the zip's root folder.
        canary: exists once code of the archive has run.
        entry: ``Model`` (a module: three numbers to two), ``Raises``, ``Dies``, ``LosesGpu`` or a handler.
        expected: the self-test's answer; None for an archive without a self-test.
        args: the self-test's arguments.
        seed: of the self-test.
        manifest: replaces parts of the manifest.
    """
    source = SOURCE.format(canary=str(canary))
    module = type(sys)(MODULE)
    sys.modules[MODULE] = module
    try:
        exec(source, module.__dict__)
        canary.unlink()
        made = module.__dict__[entry]()
        with PackageExporter(str(path)) as exporter:
            exporter.extern(["torch.**", "collections", "_collections", "builtins", "sys"])
            exporter.save_source_string(MODULE, source)
            exporter.save_pickle(ENTRY_PACKAGE, ENTRY_RESOURCE, made)
            if expected is not None:
                held = {"args": args, "kwargs": {}, "expected": expected}
                exporter.save_pickle(MANIFEST_PACKAGE, SELF_TEST_RESOURCE, held)
    finally:
        del sys.modules[MODULE]
    callables = dict.fromkeys(("Raises", "Dies", "LosesGpu"), "callable")
    kind = {"Model": "module", **callables}.get(entry, "handler")
    self_test = {
        "package": MANIFEST_PACKAGE,
        "resource": SELF_TEST_RESOURCE,
        "seed": seed,
        "rtol": 1e-4,
        "atol": 1e-5,
    }
    members = read_members(path)
    externs = members[".data/extern_modules"].decode().split()
    fields = {
        "entry": {"package": ENTRY_PACKAGE, "resource": ENTRY_RESOURCE, "kind": kind},
        "made_with": {"python": PYTHON, "torch": torch.__version__, "interpool": "0.1.0"},
        "externs": [TORCH],
        "modules": module_records(externs, {MODULE: ()}),
        "globals": pickle_globals(path, externs),
        "self_test": None if expected is None else self_test,
    }
    return add_manifest(path, manifest_of(members, **{**fields, **manifest}))


def replace_bytes(path: Path, member: str, old: bytes, new: bytes) -> None:
    """Change a member in place, with its checksum: what nothing but a digest can find."""
    assert len(old) == len(new)
    with zipfile.ZipFile(path) as file:
        (name,) = [name for name in file.namelist() if name.endswith(member)]
        info, content = file.getinfo(name), file.read(name)
    assert content.count(old) == 1
    changed = content.replace(old, new)
    data = path.read_bytes().replace(content, changed)
    data = data.replace(struct.pack("<I", info.CRC), struct.pack("<I", zlib.crc32(changed)))
    path.write_bytes(data)
    with zipfile.ZipFile(path) as file:
        assert file.testzip() is None
        assert file.read(name) == changed


def make_keys(directory: Path, name: str = "key", curve: str = "prime256v1") -> tuple[Path, Path]:
    """A private and a public key, made as our documentation says."""
    private, public = directory / f"{name}.pem", directory / f"{name}.pub.pem"
    subprocess.run(["openssl", "ecparam", "-name", curve, "-genkey", "-noout", "-out", private], check=True)
    subprocess.run(
        ["openssl", "ec", "-in", private, "-pubout", "-out", public], check=True, capture_output=True
    )
    return private, public
