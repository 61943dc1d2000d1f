"""Calls a function repeatedly and compares its answers with the correct one.

The same code runs in private interpreters, in the host, and in an ordinary Python.
"""

from __future__ import annotations

import hashlib
import importlib
import time
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Callable

# Characters; longer answers are compared by digest.
_LONGEST = 10_000
WRONG = "a wrong answer"  # the start of the failure's text
# Characters of each answer in the text of a difference.
_SHOWN = 80


def answer_of(call: str) -> str:
    """Return the answer of ``module:function`` as text."""
    module, _, name = call.partition(":")
    function = cast("Callable[[], object]", getattr(importlib.import_module(module), name))
    text = repr(function())
    if len(text) <= _LONGEST:
        return text
    return f"{text[:_SHOWN]}… {hashlib.sha256(text.encode(errors='backslashreplace')).hexdigest()}"


def repeat(call: str, right: str, rounds: int, seconds: float) -> list[str]:
    """Call a function repeatedly, for at least ``rounds`` calls and ``seconds`` seconds.

    Args:
        call: ``module:function``.
        right: the correct answer; "" to use the first one.
        rounds: the minimum number of calls.
        seconds: the minimum duration.

    Returns:
        The number of calls, the answer, and the first failure, or "". An exception of the function is a
        failure.
    """
    calls, until = 0, time.monotonic() + seconds
    while calls < rounds or time.monotonic() < until:
        try:
            text = answer_of(call)
        except (Exception, SystemExit) as error:  # noqa: BLE001 (the library may raise any exception)
            return [str(calls), right, _told(error)]
        calls += 1
        right = right or text
        if text != right:
            return [str(calls), right, difference(text, right)]
    return [str(calls), right, ""]


def difference(text: str, right: str) -> str:
    """Return where two answers differ, in one line.

    Args:
        text: the answer.
        right: the correct answer.
    """
    pairs = zip(text, right, strict=False)
    at = next((i for i, (found, wanted) in enumerate(pairs) if found != wanted), min(len(text), len(right)))
    start = max(0, at - _SHOWN // 4)
    shown, wanted = (each[start : start + _SHOWN] for each in (text, right))
    return f"{WRONG}: …{shown}… instead of …{wanted}…"


def _told(error: BaseException) -> str:
    first = next(iter(str(error).splitlines()), "")
    return f"{type(error).__name__}: {first}" if first else type(error).__name__
