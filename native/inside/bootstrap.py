"""Prepares a private interpreter, right after ``loader.py`` made imports safe."""

from __future__ import annotations

import os
from typing import Any, NoReturn

import _interpool


def install() -> None:
    """Route ctypes to private copies, refuse fork, run site, import torch, guard settings."""
    _route_ctypes()
    _refuse_fork()
    import site

    site.main()
    import torch  # noqa: F401  (each interpreter has its own from the start)

    from interpool.native.inside import settings

    settings.install()


def _route_ctypes() -> None:
    import ctypes

    open_stock = ctypes._dlopen  # type: ignore[attr-defined]

    def open_private(name: Any, mode: int = ctypes.DEFAULT_MODE) -> int:
        if name is None:
            return open_stock(name, mode)  # type: ignore[no-any-return]
        path = os.fsdecode(name)
        try:
            copy = _interpool.load_library(path, mode)
        except ImportError as error:  # no private copy could be made
            raise OSError(str(error)) from error
        # Names of a private copy would shadow those of another interpreter's.
        return open_stock(copy, mode if copy == path else ctypes.RTLD_LOCAL)  # type: ignore[no-any-return]

    class PythonApi(ctypes.PyDLL):
        """This interpreter's libpython, under the names that everybody knows."""

        def __getitem__(self, name_or_ordinal: Any) -> Any:
            if isinstance(name_or_ordinal, str) and name_or_ordinal.startswith(("Py", "_Py")):
                function = super().__getitem__(_interpool.symbol_prefix() + name_or_ordinal)
                function.__name__ = name_or_ordinal
                return function
            return super().__getitem__(name_or_ordinal)

    ctypes._dlopen = open_private  # type: ignore[attr-defined]
    ctypes.pythonapi = PythonApi("libpython", handle=open_stock(_interpool.libpython(), ctypes.RTLD_LOCAL))


def _refuse_fork() -> None:
    def refuse() -> NoReturn:
        raise RuntimeError(
            "fork inside a private interpreter would copy the other interpreters' locks in the state "
            "that they happen to be in; use subprocess, or multiprocessing with the 'spawn' method."
        )

    os.fork = refuse
    os.forkpty = refuse


def say_goodbye(_nothing: object) -> None:
    """Before the process ends: what a Python does first when it ends in order."""
    import atexit
    import sys

    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
