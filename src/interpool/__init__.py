"""interpool: one worker, many interpreters.

``from interpool import InterpreterManager, Package, MovableObject``
"""

# Any Python can run this, to say what it lacks. pyproject.toml names the versions that the tests have run
# with. pip reads that; a checkout is used without pip.
import sys

if sys.version_info < (3, 11):  # noqa: UP036
    _found = f"{sys.version.split()[0]} ({sys.executable})"
    _reason = f"interpool needs CPython 3.11 or newer, and this is {_found}"
    if sys.argv[:1] == ["-m"]:  # as `python -m` has it while it looks for its module
        sys.exit(_reason)
    raise ImportError(_reason)

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from interpool.native import InterpoolError as InterpoolError
    from interpool.native import InterpreterManager as InterpreterManager
    from interpool.native import InterpreterSession as InterpreterSession
    from interpool.native import MovableObject as MovableObject
    from interpool.native import Package as Package
    from interpool.native import PyObj as PyObj

    __version__: str

__all__ = [
    "InterpoolError",
    "InterpreterManager",
    "InterpreterSession",
    "MovableObject",
    "Package",
    "PyObj",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("interpool")
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from interpool import native

    return getattr(native, name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
