"""Modules of other packages that ``import torch`` imports, and eager inference does not use.

Torch's CUDA builds import NVIDIA's ``cuda.bindings``, 12 MB of Python objects in each interpreter. Its
modules are compiled. So their contents cannot be imported into a module object that is there already, as
``lean_imports.py`` does it. Torch's modules get *stand-ins*: the first use of one imports the module, which
takes its place. Only torch's modules have them. In any other code, an import finds the real module.
"""

from __future__ import annotations

import importlib
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any

from interpool.native.upstream.cpython_private import attributes_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class _StandIn(ModuleType):
    """Stands for a module in those that have imported it, until it is used."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real(), name)

    def __dir__(self) -> list[str]:
        return dir(self._real())

    def _real(self) -> ModuleType:
        """Import the module, and give it to torch's modules in place of this one."""
        real = importlib.import_module(self.__name__)
        for name, module in tuple(sys.modules.items()):
            if name.startswith("torch."):
                contents = attributes_of(module)
                contents.update({each: real for each, value in tuple(contents.items()) if value is self})
        return real

    def __reduce_ex__(self, _protocol: object) -> tuple[Any, ...]:
        return importlib.import_module, (self.__name__,)


class LaterModules:
    """Finds packages that have stand-ins for modules, while it is entered.

    Args:
        names: the modules' names, each with a package.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._members: dict[str, list[str]] = {}
        for name in names:
            package, _, last = name.rpartition(".")
            self._members.setdefault(package, []).append(last)
        self._found: list[ModuleType] = []

    def __enter__(self) -> LaterModules:
        sys.meta_path.insert(0, self)
        return self

    def __exit__(self, *_error: object) -> None:
        sys.meta_path.remove(self)
        for module in self._found:
            parent, _, last = module.__name__.rpartition(".")
            if sys.modules.get(module.__name__) is module:
                del sys.modules[module.__name__]
            if attributes_of(sys.modules.get(parent)).get(last) is module:
                delattr(sys.modules[parent], last)

    def find_spec(self, name: str, _path: Sequence[str] | None, _target: object = None) -> ModuleSpec | None:
        """As a finder of ``sys.meta_path``."""
        return ModuleSpec(name, self, is_package=True) if name in self._members else None  # type: ignore[arg-type]

    def create_module(self, _spec: ModuleSpec) -> None:
        """As a loader: the module is an ordinary one."""

    def exec_module(self, module: ModuleType) -> None:
        """Fill a package with its stand-ins."""
        for last in self._members[module.__name__]:
            setattr(module, last, _StandIn(f"{module.__name__}.{last}"))
        self._found.append(module)
