"""Builds the tests' own extensions, once for each source, compiler and torch."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sysconfig
import tempfile
from pathlib import Path

import torch

_TORCH = Path(torch.__file__).parent


def python_headers() -> str:
    """The option for what includes Python.h."""
    return f"-I{sysconfig.get_path('include')}"


def build(
    source: Path, name: str, *, with_torch: bool, options: tuple[str, ...] = (), program: bool = False
) -> Path:
    """Compiles ``source`` to a shared library called ``name``, or to a program; gives its path.

    Kept in ``$XDG_CACHE_HOME/interpool-tests`` (``~/.cache``), as torch's headers take half a minute.
    ``options`` go to the compiler, last.
    """
    compiler = shutil.which("g++" if with_torch else "gcc")
    assert compiler, "the tests need a compiler"
    command = [compiler, *(() if program else ("-shared",)), "-fPIC", "-O1", str(source)]
    if with_torch:
        command += [
            "-std=c++20",
            f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}",
            "-isystem",
            str(_TORCH / "include"),
            "-isystem",
            str(_TORCH / "include/torch/csrc/api/include"),
            "-isystem",
            sysconfig.get_path("include"),
            f"-L{_TORCH / 'lib'}",
            "-ltorch",
            "-ltorch_cpu",
            "-lc10",
        ]
    command += options
    version = subprocess.run([compiler, "--version"], capture_output=True, check=True).stdout
    key = hashlib.sha256(
        b"\0".join([source.read_bytes(), version, torch.__version__.encode(), repr(command).encode()])
    )
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "interpool-tests"
    target = caches / key.hexdigest()[:16] / name
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
            made = Path(scratch) / name
            linked = command
            if with_torch and (ccache := shutil.which("ccache")):
                # It keeps objects, and no libraries or programs: they are linked in a second step.
                compiled = str(Path(scratch) / "compiled.o")
                subprocess.run([ccache, *command, "-c", "-o", compiled], check=True)
                linked = [compiled if word == str(source) else word for word in command]
            subprocess.run([*linked, "-o", str(made)], check=True)
            made.rename(target)
    return target
