"""Variables of a model's that libraries read when they are imported.

``os.environ["HF_HOME"] = folder`` before ``import transformers``: in a process of its own a model has the library
read that. In here the library is imported once for all models, so the next one would find the first one's folder.
Each model has its own ``os.environ``, and code that reads it later reads the one of the model that calls it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any

_IMPORTS = "<module>"  # the name of code that runs once, when its module is imported

_noted: list[str] = []


def take_reads() -> list[str]:
    """What was read since this was asked last, for people."""
    taken = list(dict.fromkeys(_noted))
    _noted.clear()
    return taken


@contextmanager
def noted_reads(before: Mapping[bytes, bytes], is_models: Callable[[dict[str, Any]], bool]) -> Iterator[None]:
    """Note variables that are other than ``before`` and that modules of the environment read at their import.

    For the thread that has leased the interpreter.

    Args:
        before: the process's variables as the model found them, encoded.
        is_models: whether a module's namespace is a model's.
    """
    environ = type(os.environ)
    stock = environ.__getitem__

    def read(self: Any, name: Any) -> str:
        """Stands in for ``os.environ``'s."""
        value = stock(self, name)
        if before.get(os.fsencode(name)) != os.fsencode(value):
            importing = _importing(sys._getframe(1))
            if importing is not None and not is_models(importing.f_globals):
                _noted.append(f"{importing.f_globals.get('__name__')}, which has read the model's {name}")
        return value

    environ.__getitem__ = read  # type: ignore[method-assign]
    try:
        yield
    finally:
        environ.__getitem__ = stock  # type: ignore[method-assign]


def _importing(frame: FrameType | None) -> FrameType | None:
    """The innermost import that is under way."""
    while frame is not None and frame.f_code.co_name != _IMPORTS:
        frame = frame.f_back
    return frame
