"""Says what a request's body means to a model that is not a TorchServe handler itself.

A plain body is one field, named ``body`` or ``data``. A multipart form has several fields. The value of a
field depends on its content type and content:

=========================================  ==================================================
application/json                           the JSON value
text/...                                   a string
application/x-safetensors                  a dict of the tensors in the file, by their names
application/x-npy                          the array in the file, as a tensor
a file that ``torch.save`` wrote           its content: tensors and plain data (``torch_save_files``)
multipart field without a content type     the JSON value if it is JSON, else a string if it
                                           is UTF-8, else bytes
a module's body without a content type     the JSON value if it is JSON, else bytes
anything else                              bytes
=========================================  ==================================================

TorchServe passes no content type on over gRPC, or from one node of a workflow to the next.

In JSON values, a list of numbers or booleans, however nested, becomes a tensor as
``torch.tensor`` makes it: ``[1, 2]`` is int64, ``[1.0, 2]`` is float32. Everything else stays.

The model is then called with

- one positional argument, the value, if there is one field named ``body`` or ``data``;
- keyword arguments if that value is an object (a dict), one for each name;
- keyword arguments if there are several fields, or one of another name: one for each field;
- for an object ``{"inputs": X}``, with X by these same rules; ``"dtype"`` beside it, such as
  ``"float32"``, is the type of the tensors in X;
- for an object ``{"args": [...], "kwargs": {...}}``, one of which may be missing, several positional
  arguments, and keyword arguments; ``"dtype"`` as above.

A body that breaks these rules raises InputError: HTTP 400, for this request only.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch

from interpool.handler.backend.tensor_files import read_npy, read_safetensors
from interpool.handler.backend.torch_save_files import is_torch_save, read_torch_save
from interpool.handler.errors import InputError

_BODY_FIELDS = ("body", "data")
_FORM = "application/x-www-form-urlencoded"
_NUMBERS = (bool, int, float)
_NUMBER_TYPES = frozenset(_NUMBERS)
_READERS = {"application/x-safetensors": read_safetensors, "application/x-npy": read_npy}


class Arguments(NamedTuple):
    """The arguments of the model's call for one request."""

    positional: tuple[Any, ...]
    named: dict[str, Any]

    def with_tensors(self, change: Callable[[torch.Tensor], torch.Tensor]) -> Arguments:
        """Return these arguments with each tensor replaced by ``change`` of it."""

        def changed(value: Any) -> Any:
            return change(value) if isinstance(value, torch.Tensor) else value

        return Arguments(
            tuple(map(changed, self.positional)), {name: changed(value) for name, value in self.named.items()}
        )

    def bytes_fields(self) -> list[str]:
        """Names of arguments that are raw bytes; the positional one is called ``body``."""
        fields = [*(("body", value) for value in self.positional), *self.named.items()]
        return [name for name, value in fields if isinstance(value, bytes)]


def arguments(
    row: Mapping[str, Any], headers: Mapping[str, Any], *, is_for_module: bool = False
) -> Arguments:
    """A request as arguments.

    Args:
        row: the request's fields as TorchServe's backend decodes them.
        headers: the request's headers, and under each field's name its own.
        is_for_module: whether the model is a module, which takes no bytes.

    Raises:
        InputError: the request cannot be understood.
    """
    refuse_form(headers)
    if not row:
        raise InputError("the request has no body")
    values = {
        name: _value(name, value, headers.get(name), is_for_module=is_for_module)
        for name, value in row.items()
    }
    if len(values) == 1 and next(iter(values)) in _BODY_FIELDS:
        return call_with(next(iter(values.values())))
    return Arguments((), {name: _tensors(value, None, name) for name, value in values.items()})


def refuse_form(headers: Mapping[str, Any]) -> None:
    """Refuse a body that came as an HTML form's fields.

    Raises:
        InputError: the body did.
    """
    if any(name.lower() == "content-type" and _FORM in str(value) for name, value in headers.items()):
        raise InputError(
            f"the body came as {_FORM}, which is what curl -d says on its own: "
            "add -H 'Content-Type: application/json'"
        )


def call_with(value: Any, dtype: torch.dtype | None = None) -> Arguments:
    """Return the arguments that one value means.

    Args:
        value: the value of a JSON body, or a tensor.
        dtype: the type of tensors that are made from lists, unless the value has its own; None: as
            ``torch.tensor`` chooses.

    Raises:
        InputError: the value cannot be understood.
    """
    if isinstance(value, dict) and _is_call(value):
        dtype = tensor_type(value.get("dtype")) or dtype
        args, kwargs = value.get("args", []), value.get("kwargs", {})
        named = {str(name): _tensors(each, dtype, str(name)) for name, each in kwargs.items()}
        return Arguments(
            tuple(_tensors(each, dtype, f"args[{index}]") for index, each in enumerate(args)), named
        )
    if isinstance(value, dict) and "inputs" in value and value.keys() <= {"inputs", "dtype"}:
        dtype = tensor_type(value.get("dtype")) or dtype
        value = value["inputs"]
    if isinstance(value, dict):
        return Arguments((), {str(k): _tensors(v, dtype, str(k)) for k, v in value.items()})
    return Arguments((_tensors(value, dtype, "the body"),), {})


def _is_call(value: dict[Any, Any]) -> bool:
    if not (value.keys() & {"args", "kwargs"}) or value.keys() - {"args", "kwargs", "dtype"}:
        return False
    args, kwargs = value.get("args", []), value.get("kwargs", {})
    if not isinstance(args, (list, tuple, torch.Tensor)) or not isinstance(kwargs, dict):
        raise InputError(
            "`args` must be a list of the model's arguments, and `kwargs` an object of those by name"
        )
    return True


def tensor_type(name: Any) -> torch.dtype | None:
    """The type that a request's ``dtype`` names; None if the request has none.

    Raises:
        InputError: it does not name a type of torch.
    """
    if name is None:
        return None
    # Not getattr, which would import any module that torch defers.
    dtype = vars(torch).get(name) if isinstance(name, str) else None
    if not isinstance(dtype, torch.dtype):
        raise InputError(f"`dtype` must name a torch type such as float32 or int64, not {name!r}")
    return dtype


def _tensors(value: Any, dtype: torch.dtype | None, name: str) -> Any:
    if not isinstance(value, list) or not is_numeric(value):
        return value
    try:
        return torch.tensor(value, dtype=dtype)
    except (ValueError, TypeError, RuntimeError, OverflowError) as error:
        raise InputError(f"{name} is not a rectangular array of numbers: {error}") from None


def is_numeric(value: Any) -> bool:
    """Whether the leaves of a nested list, however deep, are all numbers; an empty list is."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if not isinstance(item, list):
            if not isinstance(item, _NUMBERS):
                return False
        elif not set(map(type, item)) <= _NUMBER_TYPES:
            waiting.extend(item)
    return True


def _value(name: str, value: Any, headers: Any, *, is_for_module: bool) -> Any:
    """A field's value; what TorchServe left as bytes is decoded here."""
    if not isinstance(value, (bytes, bytearray)):
        return value
    data = bytes(value)
    content_type = str(headers.get("content-type", "")) if isinstance(headers, dict) else ""
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type in _READERS:
        return _READERS[media_type](name, data)
    if is_torch_save(data):
        return read_torch_save(name, data)
    if media_type == "application/json":
        return _json(name, data)
    if media_type.startswith("text/"):
        return _text(name, data)
    is_body = name in _BODY_FIELDS
    if media_type == "" and (is_for_module or not is_body):
        return _guess(data, may_be_text=not is_body)
    return data


def decoded(name: str, data: bytes) -> Any:
    """Return what bytes without a content type mean: the content of a ``torch.save`` file, else the bytes.

    Args:
        name: of the input, for messages.
        data: the bytes.

    Raises:
        InputError: it is a ``torch.save`` file that cannot be read, or that holds other data than is allowed.
    """
    return read_torch_save(name, data) if is_torch_save(data) else data


def _json(name: str, data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{name} is not JSON: {error}") from None


def _text(name: str, data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InputError(f"{name} is not UTF-8: {error}") from None


def _guess(data: bytes, *, may_be_text: bool) -> Any:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return data
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text if may_be_text else data
