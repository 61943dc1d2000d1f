"""Variables of a model's that libraries read when they are imported.

``os.environ["HF_HOME"] = folder`` before ``import transformers``: in a process of its own a model has the
library read that. In here the library is imported once for all models, so the next model would find the first
one's folder. Each model has its own ``os.environ``: code that reads it later reads its caller's. What a
library sets when it is imported is the library's, whoever imported it.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import ItemsView, ValuesView
from types import FrameType
from typing import Any

from interpool.native.inside import owners

_IMPORTS = "<module>"  # the name of code that runs once, when its module is imported

# Of what reads all of them, and looks at some.
_ALL = {each.__code__ for each in (ItemsView.__iter__, ValuesView.__iter__, type(os.environ).copy)}
_noted: list[str] = []


def take_reads() -> list[str]:
    """What was read since this was asked last, for people."""
    taken = list(dict.fromkeys(_noted))
    _noted.clear()
    return taken


def note_reads(before: dict[bytes, bytes]) -> None:
    """From now on, note variables that are other than before and that the environment reads at its imports.

    Once per interpreter.

    Args:
        before: the process's variables as models find them, encoded. Libraries' own are added.
    """
    environ = type(os.environ)
    stock, stock_set = environ.__getitem__, environ.__setitem__

    @functools.wraps(stock)
    def read(self: Any, name: Any) -> str:
        """Stands in for ``os.environ``'s."""
        value = stock(self, name)
        if sys._getframe(1).f_code in _ALL:
            return value
        if before.get(os.fsencode(name)) != os.fsencode(value):
            library = _imported_library(sys._getframe(1))
            if library is not None:
                _noted.append(f"{library}, which has read its {name}")
        return value

    @functools.wraps(stock_set)
    def write(self: Any, name: Any, value: Any) -> None:
        """Stands in for ``os.environ``'s."""
        stock_set(self, name, value)
        if _imported_library(sys._getframe(1)) is not None:
            before[os.fsencode(name)] = os.fsencode(value)

    environ.__getitem__ = read  # type: ignore[method-assign]
    environ.__setitem__ = write  # type: ignore[method-assign]


def _imported_library(frame: FrameType | None) -> str | None:
    """The module whose import is under way, of several the innermost; None if it is a model's, or none is."""
    while frame is not None and frame.f_code.co_name != _IMPORTS:
        frame = frame.f_back
    if frame is None or owners.is_models(frame.f_globals):
        return None
    return str(frame.f_globals.get("__name__"))
