"""Whose code it is that asks for something: a model's, or the environment's.

What modules of the environment do when a model imports them, or calls them, is everybody's.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType


class Owner(NamedTuple):
    """A loaded model: by what it is told apart from others, and the path of what it was loaded from.

    Attributes:
        key: the scope of its modules, or its archive's name in this interpreter.
        path: of its directory, or archive.
    """

    key: object
    path: str


_finders: list[Callable[[dict[str, Any]], Owner | None]] = []


def find_owners(find: Callable[[dict[str, Any]], Owner | None]) -> None:
    """Have ``find`` asked for the model whose code has these globals; None: it knows of none."""
    _finders.append(find)


def is_models(globals_: dict[str, Any]) -> bool:
    """Whether these are the globals of a model's code."""
    return any(find(globals_) is not None for find in _finders)


def path_of(globals_: dict[str, Any]) -> str:
    """Of the directory, or archive, of the model whose code has these globals; "" if it is nobody's."""
    return next((owner.path for find in _finders if (owner := find(globals_)) is not None), "")


def owner_of(frame: FrameType | None, ways: re.Pattern[str]) -> Owner | None:
    """Whose code has called; None for the environment's.

    Args:
        frame: of the caller.
        ways: names of modules through which the code that wants something asks for it.
    """
    while frame is not None and ways.fullmatch(str(frame.f_globals.get("__name__"))):
        frame = frame.f_back
    if frame is None:
        return None
    return next((owner for find in _finders if (owner := find(frame.f_globals)) is not None), None)
