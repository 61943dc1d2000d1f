"""An exception in one line: what happened, and where in the user's code."""

from __future__ import annotations

import os
import traceback
from pathlib import Path

from interpool.native.errors import InterpoolError


def describe(error: BaseException) -> str:
    """One line for an HTTP answer or a log.

    Errors of interpool say all by themselves. Others are named, with the innermost place in
    code that is neither interpool's nor TorchServe's nor torch's.
    """
    if isinstance(error, InterpoolError):
        return str(error)
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    place = _place(error)
    return f"{text} (at {place})" if place else text


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
