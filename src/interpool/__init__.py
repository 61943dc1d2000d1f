"""interpool: one worker, many interpreters.

``from interpool import InterpreterManager, Package, MovableObject``
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from interpool.native import InterpoolError as InterpoolError
    from interpool.native import InterpreterManager as InterpreterManager
    from interpool.native import InterpreterSession as InterpreterSession
    from interpool.native import MovableObject as MovableObject
    from interpool.native import Package as Package
    from interpool.native import PyObj as PyObj

__all__ = [
    "InterpoolError",
    "InterpreterManager",
    "InterpreterSession",
    "MovableObject",
    "Package",
    "PyObj",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from interpool import native

    return getattr(native, name)
