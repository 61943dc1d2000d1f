"""What a private interpreter lets go of when the pool parks it: all that can be made again."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable

_callbacks: list[Callable[[], None]] = []


def when_parked(let_go: Callable[[], None]) -> None:
    """Have ``let_go`` called, in any thread, each time this interpreter is parked."""
    _callbacks.append(let_go)


def park() -> None:
    """Let go of models, and give the memory back."""
    from interpool.native.inside import packages

    for let_go in _callbacks:
        let_go()
    packages.close_all()
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
