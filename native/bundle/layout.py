"""The layout of a bundle.

It follows an installed Python where other programs search: CPython for its standard library, wheels'
libraries for each other::

    prepared.txt                         read by core/prepared.cc
    contents.json                        the contents, for people and their tools
    lib/libinterpool.so                  for programs
    python/lib/python311.zip             the standard library, compiled
    python/lib/                          libpython, and libraries of the system
    python/lib/python3.11/lib-dynload/   the standard library's extension modules
    python/lib/python3.11/site-packages/ torch and packages
    copies/files/, copies/slots/         private copies: native/provision/copies.py
    imports/                             notes about imports of torch: native/inside/import_notes.py
    licenses/                            of Python and system libraries; packages' are in their dist-info
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Layout:
    """The folders of the bundle at ``root``, an absolute path without links."""

    root: Path

    @property
    def home(self) -> Path:
        """Python's ``sys.prefix``."""
        return self.root / "python"

    @property
    def executable(self) -> Path:
        """The value of ``sys.executable``; the file does not exist."""
        return self.home / "bin" / f"python{_version('.')}"

    @property
    def libraries(self) -> Path:
        """The folder of libpython and of the system's libraries."""
        return self.home / "lib"

    @property
    def stdlib(self) -> Path:
        """The zip of the standard library, at CPython's default path."""
        return self.libraries / f"python{_version('')}.zip"

    @property
    def dynload(self) -> Path:
        """The standard library's extension modules."""
        return self.libraries / f"python{_version('.')}" / "lib-dynload"

    @property
    def packages(self) -> Path:
        """Site-packages."""
        return self.dynload.with_name("site-packages")

    @property
    def torch_libraries(self) -> Path:
        """The folder of libtorch_cpu.so."""
        return self.packages / "torch" / "lib"

    @property
    def native(self) -> Path:
        """The folder of interpool.native."""
        return self.packages / "interpool" / "native"

    @property
    def copies(self) -> Path:
        """The folder of templates and slots' copies."""
        return self.root / "copies"

    @property
    def licenses(self) -> Path:
        """The folder of the licenses of Python and the system's libraries."""
        return self.root / "licenses"

    @property
    def notes(self) -> Path:
        """The folder of notes about imports."""
        return self.root / "imports"

    def relative(self, path: str | Path) -> str:
        """Return a path below the root, relative to it."""
        return str(path).removeprefix(f"{self.root}/")


def _version(dot: str) -> str:
    return dot.join(map(str, sys.version_info[:2]))
