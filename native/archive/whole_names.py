"""Finds an archive's modules by their mangled names, ``<torch_package_0>.pkg.mod``, in Python's imports.

Code that walks a package, and pickles, import such names. If only the package's directory were known, the
import would run a file a second time, as a separate module.
"""

from __future__ import annotations

import contextlib
import importlib.abc
import sys
import weakref
from importlib.machinery import ModuleSpec
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType


class Archive(Protocol):
    """The methods of HermeticImporter that this module uses."""

    def id(self) -> str:
        """Return the prefix of its modules' mangled names."""
        ...

    def find_spec(self, module: str) -> ModuleSpec | None:
        """Return the spec of a module without running it."""
        ...

    def import_module(self, name: str, /) -> Any:
        """Import the module of that name."""
        ...


class WholeNames(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finder for one archive's modules, active from ``add`` to ``remove`` or the end of its importer."""

    def __init__(self, importer: Archive) -> None:
        self._importer = weakref.ref(importer, lambda _: self.remove())
        self._prefix = f"{importer.id()}."
        self._specs: dict[str, ModuleSpec | None] = {}

    def add(self) -> None:
        """Add the finder to Python's import system."""
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def remove(self) -> None:
        """Remove the finder from Python's import system."""
        with contextlib.suppress(ValueError):
            sys.meta_path.remove(self)

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """Return a spec that loads the archive's own module; None if the name lacks the archive's prefix.

        Args:
            fullname: the mangled name.
            path: the parent's search path; unused.
            target: unused.

        Raises:
            ModuleNotFoundError: the name has the archive's prefix, but the archive contains no such module.
        """
        importer = self._importer()
        if importer is None or not fullname.startswith(self._prefix):
            return None
        if importer.find_spec(fullname.removeprefix(self._prefix)) is None:
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)
        return ModuleSpec(fullname, self)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the archive's module, which has run already."""
        importer = self._importer()
        assert importer is not None, "it has just found the module"
        module: ModuleType = importer.import_module(spec.name.removeprefix(self._prefix))
        self._specs[spec.name] = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Restore the module's own spec; its code has run already."""
        module.__spec__ = self._specs.pop(module.__name__, module.__spec__)
