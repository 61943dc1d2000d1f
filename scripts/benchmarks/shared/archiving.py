"""Archives of a benchmark's models, made by the commands that users have."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path, PurePosixPath

from benchmarks.shared.checkout import SCRIPTS

BIN = Path(sys.executable).parent


def pack(spec: str, package: Path, root: Path = SCRIPTS) -> None:
    """Pack an object of a module below that folder, such as one of the modules here."""
    command = [str(BIN / "interpool"), "pack", spec, "-o", str(package)]
    subprocess.run(command, check=True, cwd=root, stdout=subprocess.DEVNULL)


def handler() -> str:
    """interpool's handler file."""
    printed = subprocess.run([str(BIN / "interpool"), "handler"], check=True, capture_output=True, text=True)
    return printed.stdout.strip()


def hermetic(spec: str, package: Path) -> list[str]:
    """torch-model-archiver's arguments for an object of one of the modules here, which is packed first."""
    pack(spec, package)
    return ["--serialized-file", str(package), "--handler", handler()]


def ordinary(spec: str, work: Path, *imported: str) -> list[str]:
    """The same for a handler's class, as TorchServe serves it without interpool: as source.

    Args:
        spec: ``module:class``, of one of the modules here.
        work: a folder for the files.
        imported: the other modules from here that it imports.
    """
    module, _, name = spec.partition(":")
    file, sources = work / f"{name.lower()}.py", work / f"{name.lower()}-sources"
    # Of the classes in a handler's file TorchServe takes the only one that is not imported.
    file.write_text(f"from {module} import {name}\n\n\nclass Served({name}):\n    pass\n")
    for each in (module, *imported):
        path = PurePosixPath(*each.split("."))
        for source in (path.with_suffix(".py"), *(parent / "__init__.py" for parent in path.parents[:-1])):
            (sources / source).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(SCRIPTS / source, sources / source)
    return ["--handler", str(file), "--extra-files", str(sources)]  # of a folder, what is in it


def archive(name: str, store: Path, arguments: list[str]) -> None:
    """``NAME.mar``."""
    command = [str(BIN / "torch-model-archiver"), "--model-name", name, "--version", "1.0", *arguments]
    command += ["--export-path", str(store), "--force"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def archive_tiny(store: Path, work: Path) -> None:
    """``pool.mar``, hermetic, and ``stock.mar``, for the stock worker: the code of one handler, tiny.py's."""
    handler = "benchmarks.shared.tiny:Handler"
    archive("pool", store, hermetic(handler, work / "tiny.ptpkg"))
    archive("stock", store, ordinary(handler, work))
