"""Calls the ``atexit`` functions of a model when the model is unloaded.

An interpreter outlives its models, so it cannot leave a model's exit functions to its own end. Exit functions
of the environment's modules, and of models that are still loaded, run when the interpreter ends.
"""

from __future__ import annotations

import atexit
import os
import re
import sys
import threading
import traceback
from contextlib import suppress
from contextvars import Context
from typing import TYPE_CHECKING, Any

import _interpool
from interpool.native.inside.owners import Owner, owner_of

if TYPE_CHECKING:
    from collections.abc import Callable

_INTERMEDIARIES = re.compile(r"functools|contextlib")


class _Exit:
    """An exit function of a model.

    Runs at most once. It equals the function that it wraps until it has run.
    """

    def __init__(self, owner: Owner, function: Callable[..., object], args: Any, kwargs: Any) -> None:
        self.owner = owner
        self._function = function
        self._args, self._kwargs = args, kwargs
        self._called = False

    def __call__(self) -> None:
        if not self._called:
            self._called = True
            self._function(*self._args, **self._kwargs)

    def __eq__(self, other: object) -> bool:
        # After the call, only identity counts: the environment may have registered the same function.
        by_function = not self._called and not isinstance(other, _Exit)
        return self is other or (by_function and bool(self._function == other))

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return repr(self._function)


_exits: list[_Exit] = []
_unregister = atexit.unregister


def install() -> None:
    """Override ``atexit.register`` and ``atexit.unregister``. Call once per interpreter, before any model."""
    stock = atexit.register

    def register(func: Callable[..., object], /, *args: Any, **kwargs: Any) -> Callable[..., object]:
        """Override of ``atexit.register``."""
        owner = owner_of(sys._getframe(1), _INTERMEDIARIES)
        if owner is None or not callable(func):
            return stock(func, *args, **kwargs)
        made = _Exit(owner, func, args, kwargs)
        stock(made)
        _exits.append(made)
        return func

    def unregister(func: Callable[..., object], /) -> None:
        """Override of ``atexit.unregister``."""
        _unregister(func)
        _exits[:] = [made for made in _exits if made != func]

    atexit.register = register  # type: ignore[assignment]
    atexit.unregister = unregister


def has_pending(key: object) -> bool:
    """Return whether a model has exit functions that have not run.

    Args:
        key: the model's scope, or its archive's name.
    """
    return any(made.owner.key == key for made in _exits)


def call(key: object, then: Callable[[], object] = lambda: None) -> None:
    """Run the exit functions of a model in a new thread, the last registered first.

    They may wait for the model's own threads, so they do not run in the caller's thread. If one raises, its
    traceback is printed to ``sys.stderr`` and the next one runs. If no thread can start, they run when the
    interpreter ends.

    Args:
        key: the model's scope, or its archive's name.
        then: is called after the last exit function.
    """
    own = [made for made in _exits if made.owner.key == key]
    _exits[:] = [made for made in _exits if made.owner.key != key]
    if not own:
        then()
        return
    name = f"exit functions of {own[0].owner.path}"
    thread = threading.Thread(target=_call, args=(own, then), name=name, daemon=True)
    with suppress(RuntimeError):
        Context().run(_interpool.start_apart, thread)  # the running call may be another model's


def _call(own: list[_Exit], then: Callable[[], object]) -> None:
    leave_directory(own[0].owner.path)
    while own:
        made = own.pop()
        try:
            made()
        except BaseException:  # noqa: BLE001 - as Python does
            print(f"Exception ignored in atexit callback: {made!r}", file=sys.stderr)
            traceback.print_exc()
        _unregister(made)
    then()


def leave_directory(path: str) -> None:
    """Change the calling thread's own working directory to ``path``.

    If ``path`` is no directory, such as an archive, change to the process's directory.
    """
    for directory in (path, "/proc/self/cwd", "/"):
        try:
            os.chdir(directory)
        except OSError:
            continue
        return
