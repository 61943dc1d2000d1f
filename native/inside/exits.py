"""Functions that models register with ``atexit``: they are called when their model goes.

A worker's process ends with its model; an interpreter goes on. Those of the environment's modules are
called when the interpreter ends, and so are those of models that are still there.
"""

from __future__ import annotations

import atexit
import os
import re
import sys
import threading
import traceback
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import _interpool
from interpool.native.inside.owners import Owner, owner_of

if TYPE_CHECKING:
    from collections.abc import Callable

_WAYS = re.compile(r"functools|contextlib")


class _Exit:
    """A function that a model has registered; called once. It is found by what it calls, too."""

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
        # Once called, it is nobody but itself: the environment may have registered the same function.
        by_function = not self._called and not isinstance(other, _Exit)
        return self is other or (by_function and bool(self._function == other))

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return repr(self._function)


_exits: list[_Exit] = []
_unregister = atexit.unregister


def install() -> None:
    """Stand in for what registers and forgets them. Once per interpreter, before any model."""
    stock = atexit.register

    def register(func: Callable[..., object], /, *args: Any, **kwargs: Any) -> Callable[..., object]:
        """Stands in for ``atexit.register``."""
        owner = owner_of(sys._getframe(1), _WAYS)
        if owner is None or not callable(func):
            return stock(func, *args, **kwargs)
        made = _Exit(owner, func, args, kwargs)
        stock(made)
        _exits.append(made)
        return func

    def unregister(func: Callable[..., object], /) -> None:
        """Stands in for ``atexit.unregister``."""
        _unregister(func)
        _exits[:] = [made for made in _exits if made != func]

    atexit.register = register  # type: ignore[assignment]
    atexit.unregister = unregister


def waits(key: object) -> bool:
    """Whether the model of that scope, or archive, has any."""
    return any(made.owner.key == key for made in _exits)


def call(key: object, then: Callable[[], object] = lambda: None) -> None:
    """Have those of the model of that scope, or archive, called in a thread of their own, the last one first.

    They may wait for threads of the model's, and whoever unloads it serves others, in working directories
    of those. Where one raises, that is said on ``sys.stderr``, as when a Python ends, and the next one is
    called.

    Args:
        key: the scope, or the archive's name.
        then: is called after them.
    """
    own = [made for made in _exits if made.owner.key == key]
    _exits[:] = [made for made in _exits if made.owner.key != key]
    if not own:
        then()
        return
    name = f"exit functions of {own[0].owner.path}"
    # Where no thread can be started, they are called at the interpreter's end.
    with suppress(RuntimeError):
        _interpool.start_apart(threading.Thread(target=_call, args=(own, then), name=name, daemon=True))


def _call(own: list[_Exit], then: Callable[[], object]) -> None:
    _leave_directory(own[0].owner.path)
    while own:
        made = own.pop()
        try:
            made()
        except BaseException:  # noqa: BLE001 - as Python does
            print(f"Exception ignored in atexit callback: {made!r}", file=sys.stderr)
            traceback.print_exc()
        _unregister(made)
    then()


def _leave_directory(path: str) -> None:
    """Have the calling thread, which has a directory of its own, go to that one.

    If there is none, as of an archive, or none any more, it goes to the process's.
    """
    for directory in (path, "/proc/self/cwd", "/"):
        try:
            os.chdir(directory)
        except OSError:
            continue
        return
