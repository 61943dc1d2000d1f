"""What lies where in a bundle.

As in an installed Python where others look by themselves: CPython for its standard library, wheels'
libraries for each other::

    prepared.txt                         read by core/prepared.cc
    contents.json                        what went in, for people and their tools
    lib/libinterpool.so                  for programs
    python/lib/python311.zip             the standard library, compiled
    python/lib/                          libpython, and libraries that were the system's
    python/lib/python3.11/lib-dynload/   the standard library's extension modules
    python/lib/python3.11/site-packages/ torch and packages
    copies/files/, copies/slots/         private copies: native/provision/copies.py
    imports/                             what an import of torch told: native/inside/import_notes.py
    licenses/                            Python's and the system's; packages' are in their dist-info
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Layout:
    """The folders of the bundle at ``root``, which is absolute and without links."""

    root: Path

    @property
    def home(self) -> Path:
        """Python's ``sys.prefix``."""
        return self.root / "python"

    @property
    def executable(self) -> Path:
        """What ``sys.executable`` says. There is no such file."""
        return self.home / "bin" / f"python{_version('.')}"

    @property
    def libraries(self) -> Path:
        """Libpython, and what else is the system's where the bundle was made."""
        return self.home / "lib"

    @property
    def stdlib(self) -> Path:
        """The zip where CPython looks for one."""
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
        """Folder of libtorch_cpu.so."""
        return self.packages / "torch" / "lib"

    @property
    def native(self) -> Path:
        """Folder of interpool.native."""
        return self.packages / "interpool" / "native"

    @property
    def copies(self) -> Path:
        """Templates and slots' copies."""
        return self.root / "copies"

    @property
    def licenses(self) -> Path:
        """Python's, and those of the system's libraries."""
        return self.root / "licenses"

    @property
    def notes(self) -> Path:
        """What imports told."""
        return self.root / "imports"

    def relative(self, path: str | Path) -> str:
        """A path below the root, relative to it."""
        return str(path).removeprefix(f"{self.root}/")


def _version(dot: str) -> str:
    return dot.join(map(str, sys.version_info[:2]))
