"""Describes an exception in one line: what happened, and where in the user's code."""

from __future__ import annotations

import os
import re
import traceback
from pathlib import Path

from interpool.native.errors import InterpoolError

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def describe(error: BaseException, *, named: bool = True) -> str:
    """Describe an exception in one line, for an HTTP answer or a log.

    An error of interpool is its message, which is sufficient. Other errors have their type, and the innermost
    place in code that is not interpool's, TorchServe's or torch's.

    Args:
        error: the exception.
        named: whether the line names its type. Tools take such a line for the last one of a traceback.
    """
    if isinstance(error, InterpoolError):
        return str(error)
    try:
        said = one_line(str(error))
    except BaseException:  # noqa: BLE001 -- a foreign __str__
        said = "its text cannot be made"
    if named:
        text = f"{type(error).__name__}: {said}" if said else type(error).__name__
    else:
        text = said or "an exception without a text"
    place = _place(error)
    return f"{text} (at {place})" if place else text


def one_line(text: str) -> str:
    """Escape the control characters of text from outside, so that no part of it begins a line of a log."""
    return _CONTROL.sub(lambda found: found.group().encode("unicode_escape").decode(), text)


def traceback_text(error: BaseException) -> str:
    """An exception's traceback, indented.

    TorchServe would take lines that begin with its words for its own.
    """
    lines = "".join(traceback.format_exception(error)).splitlines()
    return "\n".join(f"  {one_line(line)}" for line in lines)


def _place(error: BaseException) -> str:
    ours = str(Path(__file__).resolve().parents[2])
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        parts = frame.filename.split(os.sep)
        if frame.filename.startswith((ours, "<frozen")):
            continue
        if "torch" in parts or "ts" in parts:
            continue
        return f"{frame.filename}:{frame.lineno}, in {frame.name}"
    return ""
