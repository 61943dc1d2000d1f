"""Finds the owner of running code: a model, or the environment.

Code in modules of the environment belongs to the environment, even if a model imports or calls it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType


class Owner(NamedTuple):
    """A loaded model.

    Attributes:
        key: identifies it: the scope of its modules, or its archive's name in this interpreter.
        path: of its directory or archive.
    """

    key: object
    path: str


_finders: list[Callable[[dict[str, Any]], Owner | None]] = []


def find_owners(find: Callable[[dict[str, Any]], Owner | None]) -> None:
    """Register a function that returns the model whose code has given globals; None if it knows none."""
    _finders.append(find)


def is_models(globals_: dict[str, Any]) -> bool:
    """Return whether these are the globals of a model's code."""
    return any(find(globals_) is not None for find in _finders)


def path_of(globals_: dict[str, Any]) -> str:
    """Return the path of the directory or archive whose code has these globals; "" if no model's has."""
    return next((owner.path for find in _finders if (owner := find(globals_)) is not None), "")


def owner_of(frame: FrameType | None, intermediaries: re.Pattern[str]) -> Owner | None:
    """Return the model whose code has called; None for the environment.

    Args:
        frame: of the caller.
        intermediaries: matches names of modules to skip: they call on behalf of their own caller.
    """
    while frame is not None and intermediaries.fullmatch(str(frame.f_globals.get("__name__"))):
        frame = frame.f_back
    if frame is None:
        return None
    return next((owner for find in _finders if (owner := find(frame.f_globals)) is not None), None)
