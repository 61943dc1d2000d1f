"""What stands in torch's modules, described so that two interpreters' can be compared."""

from __future__ import annotations

import re
import sys
from types import FunctionType, ModuleType
from typing import Any

from interpool.native.inside import lean_imports
from interpool.native.upstream import torch_imports

_ADDRESS = re.compile(r"0x[0-9a-f]+|\b\d{9,}\b")
# They differ from one import to the next.
_PASSING = {"__builtins__", "__cached__", "__spec__", "__loader__"}


def describe(also_deferred: bool = False) -> dict[str, str]:
    """For each module of torch's, and each class in it, what has which name.

    Args:
        also_deferred: have what is deferred imported before; else it is left out.
    """
    if also_deferred:
        for module in tuple(sys.modules.values()):
            dir(module)
    found: dict[str, str] = {}
    for name, module in sorted(sys.modules.items()):
        if name.partition(".")[0] not in ("torch", "torchgen", "functorch") or not isinstance(
            module, ModuleType
        ):
            continue
        if not lean_imports.is_deferred(module):
            for key, value in sorted(vars(module).items()):
                if key not in _PASSING:
                    found[f"{name}:{key}"] = _describe(value)
                    if isinstance(value, type) and value.__module__ == name:
                        members = sorted(vars(value).items())
                        found |= {f"{name}:{key}.{member}": _describe(thing) for member, thing in members}
    return found


def names() -> list[str]:
    """The modules of torch's and of families that there are, deferred or not."""
    packages = {root.partition(".")[0] for roots in torch_imports.FAMILIES.values() for root in roots}
    return sorted(name for name in sys.modules if name.partition(".")[0] in packages)


def deferred(*roots: str) -> int:
    """How many modules are deferred, of all or of those in these packages."""
    names = [name for name, module in sys.modules.items() if lean_imports.is_deferred(module)]
    return sum(not roots or f"{name}.".startswith(tuple(f"{root}." for root in roots)) for name in names)


def _describe(value: Any) -> str:
    if isinstance(value, ModuleType):
        return f"module {value.__name__}"
    if isinstance(value, type | FunctionType):
        return f"{type(value).__name__} {value.__module__}.{value.__qualname__}"
    if isinstance(value, dict | set | frozenset | list | tuple):
        return f"{type(value).__name__} of {len(value)}"
    if isinstance(value, str | bool | float | None):
        return _ADDRESS.sub("", repr(value))
    return f"a {type(value).__module__}.{type(value).__qualname__}"
