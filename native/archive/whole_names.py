"""Imports of an archive's modules by their whole names, ``<torch_package_0>.pkg.mod``, by anybody.

Whoever walks the modules below a package, or has a pickle, asks Python's import system for such names. With
the package's directory alone, that would run a file a second time, as a module that is not the archive's.
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
    """What is asked of an archive's importer here; see HermeticImporter."""

    def id(self) -> str:
        """What its modules' whole names start with."""
        ...

    def find_spec(self, module: str) -> ModuleSpec | None:
        """The spec of a module, without running any of it."""
        ...

    def import_module(self, name: str, /) -> Any:
        """The module of that name."""
        ...


class WholeNames(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds one archive's modules, from ``add`` until ``remove`` or the end of its importer."""

    def __init__(self, importer: Archive) -> None:
        self._importer = weakref.ref(importer, lambda _: self.remove())
        self._prefix = f"{importer.id()}."
        self._specs: dict[str, ModuleSpec | None] = {}

    def add(self) -> None:
        """Be asked by Python's import system."""
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def remove(self) -> None:
        """Be asked no more."""
        with contextlib.suppress(ValueError):
            sys.meta_path.remove(self)

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """A spec that gives the archive's own module.

        Raises:
            ModuleNotFoundError: it is the archive's name, and the archive holds no such module.
        """
        importer = self._importer()
        if importer is None or not fullname.startswith(self._prefix):
            return None
        if importer.find_spec(fullname.removeprefix(self._prefix)) is None:
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)
        return ModuleSpec(fullname, self)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """The archive's module, which has run."""
        importer = self._importer()
        assert importer is not None, "it has just found the module"
        module: ModuleType = importer.import_module(spec.name.removeprefix(self._prefix))
        self._specs[spec.name] = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Nothing is left to do, but to give it back its own spec."""
        module.__spec__ = self._specs.pop(module.__name__, module.__spec__)
