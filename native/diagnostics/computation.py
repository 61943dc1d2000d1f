"""A function called again and again, and its answers compared with the right one.

The same code runs in private interpreters, in the host beside them, and in an ordinary Python.
"""

from __future__ import annotations

import hashlib
import importlib
import time
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Callable

# An answer that is longer is compared by its digest.
_LONGEST = 10_000
# How much of two answers is shown where they differ.
_SHOWN = 80


def answer_of(call: str) -> str:
    """What ``module:function`` answers, as text."""
    module, _, name = call.partition(":")
    function = cast("Callable[[], object]", getattr(importlib.import_module(module), name))
    text = repr(function())
    if len(text) <= _LONGEST:
        return text
    return f"{text[:_SHOWN]}… {hashlib.sha256(text.encode(errors='backslashreplace')).hexdigest()}"


def repeat(call: str, right: str, rounds: int, seconds: float) -> list[str]:
    """Call it so often and so long, whichever is more.

    Args:
        call: ``module:function``.
        right: the answer's text; "" takes the first one for it.
        rounds: at least.
        seconds: at least.

    Returns:
        How often it was called, the answer, and what went wrong first: "" if nothing has. An
        exception is no error of this function's, as it is the answer to a question.
    """
    calls, until = 0, time.monotonic() + seconds
    while calls < rounds or time.monotonic() < until:
        try:
            text = answer_of(call)
        except (Exception, SystemExit) as error:  # noqa: BLE001 -- it is the library's code
            return [str(calls), right, _told(error)]
        calls += 1
        right = right or text
        if text != right:
            return [str(calls), right, difference(text, right)]
    return [str(calls), right, ""]


def difference(text: str, right: str) -> str:
    """Where two answers differ, in a line."""
    pairs = zip(text, right, strict=False)
    at = next((i for i, (found, wanted) in enumerate(pairs) if found != wanted), min(len(text), len(right)))
    start = max(0, at - _SHOWN // 4)
    shown, wanted = (each[start : start + _SHOWN] for each in (text, right))
    return f"a wrong answer: …{shown}… instead of …{wanted}…"


def _told(error: BaseException) -> str:
    first = next(iter(str(error).splitlines()), "")
    return f"{type(error).__name__}: {first}" if first else type(error).__name__
