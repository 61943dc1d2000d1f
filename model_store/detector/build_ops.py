"""Compiles ops/region_ops.cpp to project/region_ops.so: ``python build_ops.py``, with g++.

The library is kept as long as it is newer than its source and the installed torch.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from torch.utils import cpp_extension

HERE = Path(__file__).resolve().parent
SOURCE = HERE / "ops/region_ops.cpp"
LIBRARY = HERE / "project/region_ops.so"


def build() -> Path:
    """Compile if need be; gives the library's path. Raises CalledProcessError."""
    needs = [SOURCE, Path(torch.version.__file__)]
    if LIBRARY.is_file() and LIBRARY.stat().st_mtime > max(file.stat().st_mtime for file in needs):
        return LIBRARY
    command = [os.environ.get("CXX", "g++"), "-shared", "-fPIC", "-O2", "-std=c++20", str(SOURCE)]
    command += [f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"]
    command += [word for path in cpp_extension.include_paths() for word in ("-isystem", path)]
    command += [*(f"-L{path}" for path in cpp_extension.library_paths()), "-ltorch", "-ltorch_cpu", "-lc10"]
    # It gets its name when it is whole: another process may be loading it.
    with tempfile.TemporaryDirectory(dir=LIBRARY.parent) as scratch:
        made = Path(scratch) / LIBRARY.name
        subprocess.run([*command, "-o", str(made)], check=True)
        made.rename(LIBRARY)
    return LIBRARY


if __name__ == "__main__":
    sys.stdout.write(f"{build()}\n")
