"""Serves an archive's entry that is a TorchServe handler itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any


def handler_of(entry: Any, context: Any) -> Callable[..., list[Any]] | None:
    """Initialize a handler, and return the function that answers batches; None if the entry is no handler.

    Args:
        entry: the packed object.
        context: TorchServe's context for the model.

    Raises:
        Exception: what ``initialize`` raises.
    """
    stages = [getattr(entry, name, None) for name in ("preprocess", "inference", "postprocess")]
    if not callable(getattr(entry, "handle", None)) and not all(map(callable, stages)):
        return None
    # Look it up before initialize, as in TorchServe: a handle that initialize sets is never called.
    handle: Callable[..., list[Any]] = getattr(entry, "handle", None) or _pipeline(*stages)
    if callable(getattr(entry, "initialize", None)):
        entry.initialize(context)
    return handle


def _pipeline(preprocess: Any, inference: Any, postprocess: Any) -> Callable[..., list[Any]]:
    def handle(data: Sequence[dict[str, Any]], _context: Any) -> list[Any]:
        answers: list[Any] = postprocess(inference(preprocess(data)))
        return answers

    return handle
