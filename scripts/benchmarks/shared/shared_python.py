"""Ordinary processes that run the code that private interpreters run: the shared libpython's.

Where Python's own program has Python linked in, as Debian's and conda-forge's have, that is compiled
otherwise than the shared library beside it, and faster. How far interpreters fall behind processes because
of that says nothing of interpreters: a program that embeds Python does, too.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from interpool.native.provision.environment import libpython_path

_SOURCE = """
#include <Python.h>
int main(int count, char** arguments) { return Py_BytesMain(count, arguments); }
"""


def is_linked_in() -> bool:
    """Whether this process has Python in its program, and not from a shared library."""
    return os.path.realpath(libpython_path()) not in Path("/proc/self/maps").read_text()


def embedding(folder: Path) -> Path:
    """A program that is this Python, environment and all, by way of the shared library.

    Args:
        folder: where it may lie, as long as it is needed.

    Raises:
        subprocess.CalledProcessError: it cannot be compiled: no compiler, no headers.
    """
    made = folder / "bin" / "python"
    made.parent.mkdir(parents=True)
    library = libpython_path()
    compiler = shutil.which("cc") or "gcc"
    command = [compiler, "-O2", "-x", "c", "-", "-x", "none", library, f"-Wl,-rpath,{library.parent}"]
    headers = sysconfig.get_path("include")
    subprocess.run([*command, f"-I{headers}", "-o", made], input=_SOURCE, text=True, check=True)
    # What makes a virtual environment of the folder above: that of this process.
    shutil.copy(Path(sys.prefix, "pyvenv.cfg"), folder)
    (folder / "lib").symlink_to(Path(sys.prefix, "lib"))
    return made
