"""Converts what a model returns to what TorchServe sends.

Tensors and numpy arrays become (nested) lists, tuples become lists, and mappings become dicts. If the answer
is a string or bytes, it is sent as it is; any other answer is sent as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from interpool.native.upstream.torch_private import plain_name


def sendable(value: Any) -> Any:
    """Return a value as text, bytes, or JSON's kinds of values.

    Raises:
        CannotSend: it contains something that has no form in JSON.
    """
    if isinstance(value, (str, bytes)):
        return value
    if isinstance(value, bytearray):
        return bytes(value)
    return jsonable(value)


class CannotSend(TypeError):
    """An answer contains something that has no form in JSON.

    Attributes:
        field: its place in the answer, such as ``answer['cache']``.
        kind: the full name of its class.
    """

    def __init__(self, field: str, kind: str) -> None:
        super().__init__(
            f"{field} is a {kind}, which cannot be sent as JSON: return "
            "tensors, numbers, strings, lists or dicts, or pack an object with handle()"
        )
        self.field = field
        self.kind = kind


def encoded(value: Any) -> bytes | bytearray:
    """Encode what ``sendable`` returned, as TorchServe sends it.

    Raises:
        ValueError: text is not valid Unicode, or a number has more digits than Python writes.
        RecursionError: the value is nested too deep.
    """
    if isinstance(value, (bytes, bytearray)):
        return value
    if isinstance(value, str):
        return value.encode()
    return json.dumps(value).encode()


def content_type(value: Any) -> str:
    """The HTTP content type of what ``sendable`` returned."""
    if isinstance(value, str):
        return "text/plain; charset=utf-8"
    return "application/octet-stream" if isinstance(value, bytes) else "application/json"


def jsonable(value: Any) -> Any:
    """Return a value as JSON's kinds of values.

    Raises:
        CannotSend: a part has no form in JSON; names the part and its class.
    """
    try:
        return _jsonable(value)
    except CannotSend as error:
        raise CannotSend(_place(value, "answer"), error.kind) from None


def _jsonable(value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, torch.Tensor):
        if value.is_complex():
            raise CannotSend("", f"tensor of {str(value.dtype).removeprefix('torch.')}")
        return value.detach().cpu().tolist()
    if isinstance(value, Mapping):
        return {str(name): _jsonable(item) for name, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [_jsonable(item) for item in value]
    if hasattr(value, "dtype") and hasattr(value, "tolist"):
        return _jsonable(value.tolist())
    raise CannotSend("", f"{plain_name(type(value).__module__)}.{type(value).__qualname__}")


def _place(value: Any, field: str) -> str:
    """The place of the first part that cannot be sent, in a value that cannot be sent."""
    named: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, Mapping):
        named = ((str(name), item) for name, item in value.items())
    elif isinstance(value, (tuple, list)):
        named = enumerate(value)
    for name, item in named:
        try:
            _jsonable(item)
        except CannotSend:
            return _place(item, f"{field}[{name!r}]")
    return field
