"""From what a model returns to what TorchServe sends.

Tensors and numpy arrays become (nested) lists, tuples and lists become lists, mappings become
dicts; a string or bytes at the top is sent as it is, everything else as JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch


class CannotSplit(Exception):
    """A batch's output does not have one part per request."""


def split(output: Any, size: int) -> list[Any]:
    """One part per request of a batch's output: the first dimension of each tensor in it.

    Raises CannotSplit.
    """
    if isinstance(output, torch.Tensor):
        if output.dim() == 0 or output.size(0) != size:
            raise CannotSplit
        return list(output)
    if isinstance(output, Mapping):
        columns = [split(value, size) for value in output.values()]
        return [dict(zip(output, row, strict=True)) for row in zip(*columns, strict=True)]
    if isinstance(output, (tuple, list)) and output:
        columns = [split(value, size) for value in output]
        return [list(row) for row in zip(*columns, strict=True)]
    raise CannotSplit


def sendable(value: Any) -> Any:
    """``value`` with everything in it that JSON lacks replaced; raises TypeError naming a type."""
    if isinstance(value, (str, bytes)):
        return value
    if isinstance(value, bytearray):
        return bytes(value)
    return jsonable(value)


def content_type(value: Any) -> str:
    """The HTTP content type of what ``sendable`` gave."""
    if isinstance(value, str):
        return "text/plain; charset=utf-8"
    return "application/octet-stream" if isinstance(value, bytes) else "application/json"


def jsonable(value: Any) -> Any:
    """``value`` as JSON's kinds of values; raises TypeError naming a type."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, torch.Tensor):
        return value.detach().cpu().tolist()
    if isinstance(value, Mapping):
        return {str(name): jsonable(item) for name, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [jsonable(item) for item in value]
    if hasattr(value, "dtype") and hasattr(value, "tolist"):
        return jsonable(value.tolist())
    raise TypeError(
        f"a {type(value).__module__}.{type(value).__qualname__} cannot be sent as JSON: return "
        "tensors, numbers, strings, lists or dicts, or pack an object with handle()"
    )
