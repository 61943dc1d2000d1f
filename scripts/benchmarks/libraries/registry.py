"""The registry of small computations: one for each library that `scripts/bench libraries` tries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

Answer = list[Any]


class Library(NamedTuple):
    """One library, and a computation by which it is tried.

    Attributes:
        distribution: as pip knows it.
        install: what pip is to install, if that is not the distribution's name.
        call: ``module:function``.
        what: is computed, in a few words.
    """

    distribution: str
    install: tuple[str, ...]
    call: str
    what: str


LIBRARIES: list[Library] = []


def error_of(kind: type[BaseException], function: Callable[..., object], *args: Any, **kwargs: Any) -> Any:
    """The error of that kind with which the function refuses these arguments."""
    try:
        function(*args, **kwargs)
    except kind as error:
        return error
    raise AssertionError(f"{function} refuses nothing")


def computes(distribution: str, *install: str) -> Callable[[Callable[[], Answer]], Callable[[], Answer]]:
    """Registers a computation; its docstring's first line says what it is."""

    def register(function: Callable[[], Answer]) -> Callable[[], Answer]:
        call = f"{function.__module__}:{function.__name__}"
        what = (function.__doc__ or "").partition("\n")[0].rstrip(".")
        LIBRARIES.append(Library(distribution, install or (distribution,), call, what))
        return function

    return register
