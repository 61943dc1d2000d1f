"""Extracts archives as TorchServe does it, into a directory with a manifest."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

from interpool.handler.errors import ServeError
from interpool.handler.frontend.shim import HANDLER_STEM
from interpool.handler.torchserve import MANIFEST

PACKAGE = ".ptpkg"  # the suffix of a hermetic archive that is in no .mar
_REMEDY = "Make one with `interpool archive`, or torch-model-archiver"


@contextlib.contextmanager
def extracted(mar: Path) -> Iterator[Path]:
    """Extract an archive, and remove the directory at the end of the ``with`` block.

    Args:
        mar: a .mar, a .tar.gz, a .ptpkg, or a directory, which is used as it is.

    Raises:
        ServeError: it is none of these, or has no manifest.
        OSError: no temporary directory can be made.
    """
    if mar.is_dir():
        yield mar.resolve()
        return
    with tempfile.TemporaryDirectory(prefix="interpool-mar-") as target:
        try:
            if mar.suffix == PACKAGE:
                _wrap(mar, Path(target))
            elif zipfile.is_zipfile(mar):
                with zipfile.ZipFile(mar) as archive:
                    archive.extractall(target)
            else:
                with tarfile.open(mar) as tar:
                    tar.extractall(target, filter="data")
        except Exception as error:  # noqa: BLE001 - each format and compression has its own
            reason = str(error).partition("\n")[0].rstrip(":")
            raise ServeError(f"{mar} is not an archive of TorchServe's: {reason}. {_REMEDY}") from None
        places = (Path(target), *sorted(path for path in Path(target).iterdir() if path.is_dir()))
        found = [place for place in places if (place / MANIFEST).is_file()]
        if not found:
            raise ServeError(f"{mar} holds no {MANIFEST}, so it is no archive of TorchServe's. {_REMEDY}")
        yield found[0]


def _wrap(package: Path, directory: Path) -> None:
    """Make a model's directory of a hermetic archive, as TorchServe makes one of the .mar around it."""
    model = {
        "modelName": package.stem,
        "modelVersion": "1.0",
        "handler": f"{HANDLER_STEM}.py",
        "serializedFile": package.name,
    }
    (directory / MANIFEST).parent.mkdir()
    (directory / MANIFEST).write_text(json.dumps({"model": model}), encoding="utf-8")
    try:
        os.link(package.resolve(), directory / package.name)
    except OSError:  # another file system
        shutil.copyfile(package, directory / package.name)
