"""What a private interpreter frees when the pool parks it: everything that can be made again."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable

_callbacks: list[Callable[[], None]] = []


def when_parked(free: Callable[[], None]) -> None:
    """Have ``free`` called, in any thread, each time this interpreter is parked."""
    _callbacks.append(free)


def park() -> None:
    """Free the models, and give the memory back to the system."""
    from interpool.native.inside import packages

    for free in _callbacks:
        free()
    packages.close_all()
    gc.collect()
    give_memory_back()


def give_memory_back() -> None:
    """What was freed goes back to the system."""
    ctypes.CDLL(None).malloc_trim(0)
