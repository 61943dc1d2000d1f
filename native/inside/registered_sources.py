"""Imports modules whose source the pool was given: ``InterpreterManager.register_module_source``."""

from __future__ import annotations

import sys
from importlib.abc import InspectLoader, MetaPathFinder
from importlib.machinery import ModuleSpec
from typing import TYPE_CHECKING

import _interpool

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import CodeType, ModuleType


class RegisteredSources(MetaPathFinder, InspectLoader):
    """Finds and loads registered modules.

    It comes before all other finders, because registering is explicit.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the module's spec; None if no source was registered for it.

        Args:
            fullname: of the module.
            path: the parent's search path; unused.
            target: unused.
        """
        found = _interpool.module_source(fullname)
        if found is None:
            return None
        return ModuleSpec(fullname, self, origin=_file_name(fullname), is_package=found[1])

    def get_source(self, fullname: str) -> str:
        """Return the text that was registered last.

        Raises:
            ImportError: no source was registered for the module.
        """
        found = _interpool.module_source(fullname)
        if found is None:
            raise ImportError(f"no source was registered for {fullname}", name=fullname)
        return found[0]

    def get_code(self, fullname: str) -> CodeType:
        """Compile the source under a file name that tracebacks can show.

        Raises:
            ImportError: no source was registered for the module.
            SyntaxError: its source is not valid Python.
        """
        return self.source_to_code(self.get_source(fullname), _file_name(fullname))


def _file_name(module: str) -> str:
    return f"<registered source>/{module}.py"  # linecache looks for no lines of a file in angle brackets


def install() -> None:
    """Add the finder to this interpreter."""
    sys.meta_path.insert(0, RegisteredSources())
