"""A model that is called over and over: in ordinary Python, and inside interpreters."""

from __future__ import annotations

import time
from typing import Any

import torch
from stock_answer import call

WARM = 3
_loaded: tuple[Any, Any, Any] = (None, (), {})


def repeat(entry: Any, inputs: tuple[tuple[Any, ...], dict[str, Any]], seconds: float) -> float:
    """Calls per second, made one after another for that long; one at least."""
    args, kwargs = inputs
    count = 0
    start = time.perf_counter()
    while True:
        call(entry, args, kwargs)
        count += 1
        took = time.perf_counter() - start
        if took >= seconds:
            return count / took


def inputs_of(answer: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The inputs that stock_answer.py kept."""
    kept = torch.load(answer, weights_only=True)
    return tuple(kept["args"]), dict(kept["kwargs"])


def load(archive: str, answer: str) -> None:
    """Inside an interpreter: load the archive's entry, and call it until it is warm."""
    global _loaded
    from interpool.native.archive.format import ENTRY_PACKAGE, ENTRY_RESOURCE
    from interpool.native.inside.packages import load_object

    entry = load_object(archive, ENTRY_PACKAGE, ENTRY_RESOURCE)
    args, kwargs = inputs_of(answer)
    for _ in range(WARM):
        call(entry, args, kwargs)
    _loaded = (entry, args, kwargs)


def repeat_loaded(seconds: float) -> float:
    """Inside an interpreter: ``repeat`` of what was loaded there."""
    entry, args, kwargs = _loaded
    return repeat(entry, (args, kwargs), seconds)
