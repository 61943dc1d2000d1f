"""Observes which modules run on a model's example inputs, and which are called while it is imported.

Modules that are only imported can be left out; modules that run cannot.
"""

from __future__ import annotations

import builtins
import inspect
import sys
import threading
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interpool.archiver_ext.source_lines import frame_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from types import FrameType, ModuleType

    from interpool.archiver_ext.packing.decide.rules import Rules


class Calls:
    """Records calls by module.

    Attributes:
        ran: top-level names of modules whose code ran in ``running``.
        called: top-level names of modules that the project's modules call while they are imported, with the
            project's line.
    """

    def __init__(self, rules: Rules) -> None:
        self.ran: set[str] = set()
        self.called: dict[str, str] = {}
        self._shown = rules.trees.shown
        self._is_own = cache(lambda filename: rules.trees.owns(Path(filename)))
        self._may_be_own = cache(rules.trees.holds_name)

    @contextmanager
    def importing(self) -> Iterator[None]:
        """Record calls from the top level of the project's modules and classes."""
        import_anything = builtins.__import__

        def import_others_unseen(
            name: str,
            globals: Mapping[str, object] | None = None,  # noqa: A002 -- as in builtins
            locals: Mapping[str, object] | None = None,  # noqa: A002
            fromlist: Sequence[str] | None = (),
            level: int = 0,
        ) -> ModuleType:
            if level or not name or self._may_be_own(name.partition(".")[0]):
                return import_anything(name, globals, locals, fromlist, level)
            # A large library makes millions of calls during its import, none from the project; profiling
            # would triple the time.
            watching = sys.getprofile()
            sys.setprofile(None)
            try:
                return import_anything(name, globals, locals, fromlist, level)
            finally:
                sys.setprofile(watching)

        builtins.__import__ = import_others_unseen
        sys.setprofile(self._while_importing)
        try:
            yield
        finally:
            sys.setprofile(None)
            builtins.__import__ = import_anything

    @contextmanager
    def running(self) -> Iterator[None]:
        """Record all calls in all threads."""
        threading.setprofile(self._while_running)
        sys.setprofile(self._while_running)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    def _while_running(self, frame: FrameType, event: str, arg: Any) -> None:
        if event == "call":
            self.ran.add(_top(frame.f_globals.get("__name__")))
        elif event == "c_call":
            self.ran.add(_native_top(arg))

    def _while_importing(self, frame: FrameType, event: str, arg: Any) -> None:
        # Code without CO_OPTIMIZED is a module's or class's body, which runs at import.
        if event == "call":
            caller = frame.f_back
            if caller is None or caller.f_code.co_flags & inspect.CO_OPTIMIZED:
                return
            is_import = frame.f_code.co_name == "<module>"
            callee = "" if is_import else _top(frame.f_globals.get("__name__"))
        elif event == "c_call":
            caller = frame
            if caller.f_code.co_flags & inspect.CO_OPTIMIZED:
                return
            callee = _native_top(arg)
        else:
            return
        if callee and callee not in self.called and self._is_own(caller.f_code.co_filename):
            self.called[callee] = frame_line(caller, self._shown)


def _top(module: object) -> str:
    return module.partition(".")[0] if isinstance(module, str) else ""


def _native_top(function: Any) -> str:
    owner = getattr(function, "__self__", None)
    module = getattr(function, "__module__", None) or getattr(type(owner), "__module__", None)
    return _top(module)
