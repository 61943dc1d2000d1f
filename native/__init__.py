"""Private interpreters on stock wheels: the pool, its sessions, its packages.

Names are resolved on first use, so that a private interpreter can import ``interpool.native.inside`` without
the host's compiled module.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from interpool.native.errors import InterpoolError as InterpoolError
    from interpool.native.pool.manager import InterpreterManager as InterpreterManager
    from interpool.native.pool.manager import InterpreterSession as InterpreterSession
    from interpool.native.pool.manager import MovableObject as MovableObject
    from interpool.native.pool.manager import Package as Package
    from interpool.native.pool.manager import PyObj as PyObj

_EXPORTS = {
    "InterpreterManager": "interpool.native.pool.manager",
    "InterpreterSession": "interpool.native.pool.manager",
    "MovableObject": "interpool.native.pool.manager",
    "Package": "interpool.native.pool.manager",
    "PyObj": "interpool.native.pool.manager",
    "InterpoolError": "interpool.native.errors",
}

__all__ = list(_EXPORTS)


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_EXPORTS[name]), name)


def __dir__() -> list[str]:
    return __all__
