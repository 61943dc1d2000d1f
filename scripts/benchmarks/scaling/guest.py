"""A model that is called over and over: in ordinary Python, and inside interpreters."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from stock_answer import call

from benchmarks.shared.at_once import rate_of

WARM = 3
_loaded: Callable[[float], float]


def repeat(entry: Any, inputs: tuple[tuple[Any, ...], dict[str, Any]], seconds: float) -> float:
    """Calls a second."""
    return rate_of(lambda: call(entry, *inputs), seconds)


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
    _loaded = functools.partial(repeat, entry, inputs_of(answer))
    for _ in range(WARM):
        _loaded(0.0)


def repeat_loaded(seconds: float) -> float:
    """Inside an interpreter: ``repeat`` of what was loaded there."""
    return _loaded(seconds)
