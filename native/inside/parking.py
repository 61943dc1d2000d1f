"""Frees the memory of a parked interpreter that it can rebuild later."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable

_callbacks: list[Callable[[], None]] = []


def when_parked(free: Callable[[], None]) -> None:
    """Register a function that runs, in any thread, each time this interpreter is parked."""
    _callbacks.append(free)


def park() -> None:
    """Unload all models and return the freed memory to the system."""
    from interpool.native.inside import packages

    for free in _callbacks:
        free()
    packages.close_all()
    gc.collect()
    give_memory_back()


def give_memory_back() -> None:
    """Return freed memory to the system."""
    ctypes.CDLL(None).malloc_trim(0)
