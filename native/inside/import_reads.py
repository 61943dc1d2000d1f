"""Detects environment variables of a model that libraries read during their import.

Example: ``os.environ["HF_HOME"] = folder`` before ``import transformers``. The library is imported once for
all models, so the next model would use the first model's folder. Each model has its own ``os.environ``, so
reads after the import are safe. The same goes for a variable that the model removes. What a library sets or
removes during its import belongs to the library.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import ItemsView, ValuesView
from types import FrameType
from typing import Any

from interpool.native.inside import owners

_IMPORTS = "<module>"  # the code name of a module's top level

# Callers that read all variables, and use some.
_ALL = {each.__code__ for each in (ItemsView.__iter__, ValuesView.__iter__, type(os.environ).copy)}
_noted: list[str] = []


def take_reads() -> list[str]:
    """Return descriptions of the reads since the last call."""
    taken = list(dict.fromkeys(_noted))
    _noted.clear()
    return taken


def note_reads(before: dict[bytes, bytes]) -> None:
    """Start to record variables that models have changed and that the environment reads during imports.

    Call once per interpreter.

    Args:
        before: the process's variables as models find them, encoded. Variables that libraries set are added
            to it.
    """
    environ = type(os.environ)
    stock, stock_set, stock_delete = environ.__getitem__, environ.__setitem__, environ.__delitem__
    present = set(before)  # without those that libraries remove

    @functools.wraps(stock)
    def read(self: Any, name: Any) -> str:
        """Override of ``os.environ.__getitem__``."""
        try:
            value = stock(self, name)
        except KeyError:
            if os.fsencode(name) in present:
                note(name)
            raise
        if sys._getframe(1).f_code not in _ALL and before.get(os.fsencode(name)) != os.fsencode(value):
            note(name)
        return value

    def note(name: Any) -> None:
        library = _imported_library(sys._getframe(2))
        if library is not None:
            _noted.append(f"{library}, which has read its {name}")

    @functools.wraps(stock_set)
    def write(self: Any, name: Any, value: Any) -> None:
        """Override of ``os.environ.__setitem__``."""
        stock_set(self, name, value)
        if _imported_library(sys._getframe(1)) is not None:
            before[os.fsencode(name)] = os.fsencode(value)

    @functools.wraps(stock_delete)
    def delete(self: Any, name: Any) -> None:
        """Override of ``os.environ.__delitem__``."""
        stock_delete(self, name)
        if _imported_library(sys._getframe(1)) is not None:
            present.discard(os.fsencode(name))

    environ.__getitem__ = read  # type: ignore[method-assign]
    environ.__setitem__ = write  # type: ignore[method-assign]
    environ.__delitem__ = delete  # type: ignore[method-assign]


def _imported_library(frame: FrameType | None) -> str | None:
    """Return the innermost module that is being imported; None if there is none, or it is a model's."""
    while frame is not None and frame.f_code.co_name != _IMPORTS:
        frame = frame.f_back
    if frame is None or owners.is_models(frame.f_globals):
        return None
    return str(frame.f_globals.get("__name__"))
