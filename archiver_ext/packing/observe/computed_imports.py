"""Observes imports by computed names, and their importers.

Sources contain import statements and literal names. Imports of modules found in a folder, named in a
configuration, or listed in ``__all__`` are visible only at run time.
"""

from __future__ import annotations

import builtins
import dis
import importlib
import importlib.util
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from types import FrameType, ModuleType

# From 3.15 on, the first use of a lazily imported name imports it.
_USES = ("LOAD_NAME", "LOAD_GLOBAL", "LOAD_ATTR", "LOAD_FROM_DICT_OR_GLOBALS", "IMPORT_FROM")
_STATEMENTS = {dis.opmap[name] for name in ("IMPORT_NAME", *(_USES if sys.version_info >= (3, 15) else ()))}


class ComputedImports:
    """Records calls of ``importlib.import_module`` and ``__import__``, and submodules that ``*`` imports.

    Attributes:
        by: by importer, the modules that it imported by such calls, with the line.
    """

    def __init__(self) -> None:
        self.by: dict[str, dict[str, int]] = {}

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Record these imports during the block."""
        import_anything, import_module = builtins.__import__, importlib.import_module

        def noted_import(
            name: str,
            globals: Mapping[str, object] | None = None,  # noqa: A002 -- as in builtins
            locals: Mapping[str, object] | None = None,  # noqa: A002
            fromlist: Sequence[str] | None = (),
            level: int = 0,
        ) -> ModuleType:
            found = import_anything(name, globals, locals, fromlist, level)
            caller = sys._getframe(1)
            from_c = isinstance(fromlist, list) and not fromlist  # PyImport_Import with its caller's globals
            if not level and not from_c and not _is_statement(caller):
                self._note(caller, name)
            if fromlist and "*" in fromlist:
                named = (f"{found.__name__}.{each}" for each in getattr(found, "__all__", ()))
                for submodule in filter(sys.modules.__contains__, named):
                    self._note(caller, submodule)
            return found

        def noted_import_module(name: str, package: str | None = None) -> ModuleType:
            found = import_module(name, package)
            self._note(sys._getframe(1), importlib.util.resolve_name(name, package))
            return found

        builtins.__import__, importlib.import_module = noted_import, noted_import_module
        try:
            yield
        finally:
            builtins.__import__, importlib.import_module = import_anything, import_module

    def _note(self, caller: FrameType, name: str) -> None:
        user = caller.f_globals.get("__name__")
        if isinstance(user, str):
            self.by.setdefault(user, {}).setdefault(name, caller.f_lineno)


def _is_statement(frame: FrameType) -> bool:
    return frame.f_lasti >= 0 and frame.f_code.co_code[frame.f_lasti] in _STATEMENTS
