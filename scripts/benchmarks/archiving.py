"""Archives of a benchmark's models, made by the commands that users have."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
BIN = Path(sys.executable).parent


def pack(spec: str, package: Path) -> None:
    """Pack an object of one of the modules here."""
    command = [str(BIN / "interpool"), "pack", spec, "-o", str(package)]
    subprocess.run(command, check=True, cwd=HERE, stdout=subprocess.DEVNULL)


def handler() -> str:
    """interpool's handler file."""
    printed = subprocess.run([str(BIN / "interpool"), "handler"], check=True, capture_output=True, text=True)
    return printed.stdout.strip()


def hermetic(spec: str, package: Path) -> list[str]:
    """torch-model-archiver's arguments for an object of one of the modules here, which is packed first."""
    pack(spec, package)
    return ["--serialized-file", str(package), "--handler", handler()]


def archive(name: str, store: Path, arguments: list[str]) -> None:
    """``NAME.mar``."""
    command = [str(BIN / "torch-model-archiver"), "--model-name", name, "--version", "1.0", *arguments]
    command += ["--export-path", str(store), "--force"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
