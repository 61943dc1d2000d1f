"""From what a model returns to what TorchServe sends.

Tensors and numpy arrays become (nested) lists, tuples and lists become lists, mappings become
dicts; a string or bytes at the top is sent as it is, everything else as JSON.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from interpool.native.upstream.torch_private import MANGLED


class CannotSplit(Exception):
    """A batch's output does not have one part per request."""


def split(output: Any, sizes: int | Sequence[int]) -> list[Any]:
    """One part per request of a batch's output: of the first dimension of each tensor in it.

    Args:
        output: the model's.
        sizes: how many requests there are, one of the first dimension for each, which their parts
            lack; or how much of the first dimension each request has, and then the parts keep it.

    Raises:
        CannotSplit: it has other dimensions, or none.
    """
    if isinstance(output, torch.Tensor):
        total = sizes if isinstance(sizes, int) else sum(sizes)
        if output.dim() == 0 or output.size(0) != total:
            raise CannotSplit
        return list(output) if isinstance(sizes, int) else list(output.split(list(sizes)))
    if isinstance(output, Mapping):
        columns = [split(value, sizes) for value in output.values()]
        return [dict(zip(output, row, strict=True)) for row in zip(*columns, strict=True)]
    if isinstance(output, (tuple, list)) and output:
        columns = [split(value, sizes) for value in output]
        return [list(row) for row in zip(*columns, strict=True)]
    raise CannotSplit


def sendable(value: Any) -> Any:
    """``value`` with everything in it that JSON lacks replaced; raises CannotSend."""
    if isinstance(value, (str, bytes)):
        return value
    if isinstance(value, bytearray):
        return bytes(value)
    return jsonable(value)


class CannotSend(TypeError):
    """An answer holds what JSON has no form for.

    Attributes:
        field: where in the answer, such as ``answer['cache']``.
        kind: its class, by its full name.
    """

    def __init__(self, field: str, kind: str) -> None:
        super().__init__(
            f"{field} is a {kind}, which cannot be sent as JSON: return "
            "tensors, numbers, strings, lists or dicts, or pack an object with handle()"
        )
        self.field = field
        self.kind = kind


def content_type(value: Any) -> str:
    """The HTTP content type of what ``sendable`` gave."""
    if isinstance(value, str):
        return "text/plain; charset=utf-8"
    return "application/octet-stream" if isinstance(value, bytes) else "application/json"


def jsonable(value: Any) -> Any:
    """``value`` as JSON's kinds of values; raises CannotSend, naming the field and its type."""
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
    raise CannotSend("", f"{_plain_name(type(value).__module__)}.{type(value).__qualname__}")


def _plain_name(module: str) -> str:
    """A module's name as its author knows it, also of one that lies in an archive."""
    return module.partition(">.")[2] if module.startswith(MANGLED) else module


def _place(value: Any, field: str) -> str:
    """Where in a value that cannot be sent the first part of it is that cannot be."""
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
