"""Parses TorchServe's request envelopes, for models that are no handlers themselves.

An envelope (``service_envelope``) is the form of requests and answers. TorchServe's own class of that name
wraps a handler. For a module or a callable, an envelope means:

============  ============================================  ========================================
envelope      a request                                     its answer
============  ============================================  ========================================
``body``      its field ``data`` or ``body`` alone          what the model returned
``json``,     ``{"instances": [...]}``: each is one input,  ``{"predictions": [...]}``, one for each;
``kserve``    with the meaning of a request's body;         ``{"explanations": [...]}`` to a request
              ``{"b64": "..."}`` is bytes. ``"dtype"``      for these
              beside it is the type of tensors
``kservev2``  ``{"inputs": [...]}``, each with ``name``,    ``outputs`` in the same form, and ``id``,
              ``shape``, ``datatype`` and ``data``: one     ``model_name``, ``model_version``
              call, with a tensor for each input
============  ============================================  ========================================

Instances that are numbers, or arrays of them, get one common type, as if they were one array.
``open_inference`` says the rest of ``kservev2``.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import torch

from interpool.handler.backend.envelope_requests import Parse, Request, Subject, body_of, bytes_of, object_in
from interpool.handler.backend.inputs import (
    arguments,
    call_with,
    decoded,
    is_numeric,
    refuse_form,
    tensor_type,
)
from interpool.handler.backend.open_inference import tensors
from interpool.handler.backend.outputs import sendable
from interpool.handler.errors import InputError


def plain(row: Mapping[str, Any], headers: Mapping[str, Any], subject: Subject) -> Request:
    """Parse a request without an envelope: one call, whose answer is the request's.

    Args:
        row: the request's fields as TorchServe's backend decodes them.
        headers: the request's headers, and under each field's name its own.
        subject: the model.

    Raises:
        InputError: the request cannot be understood.
    """
    call = arguments(row, headers, is_for_module=subject.is_module)
    return Request([call], False, sendable, lambda parts: parts[0])


def _body(row: Mapping[str, Any], headers: Mapping[str, Any], subject: Subject) -> Request:
    name = "data" if row.get("data") else "body"
    if name not in row:
        raise InputError("the `body` envelope takes what is in the field `body` or `data`, and there is none")
    return plain({name: row[name]}, headers, subject)


# ---- instances -----------------------------------------------------------------------------------


def _instances(row: Mapping[str, Any], headers: Mapping[str, Any], subject: Subject) -> Request:
    refuse_form(headers)  # beside that, the content type does not matter
    content = object_in(body_of(row))
    found = content.get("instances")
    if not isinstance(found, list):
        raise InputError('this model\'s envelope takes {"instances": [...]}, a list with one input each')
    dtype = tensor_type(content.get("dtype"))
    values = [_without_base64(value) for value in found]
    kind = "explanations" if subject.explains else "predictions"
    inputs = _with_one_type(values, dtype, subject.is_module)
    return Request(
        [call_with(value, dtype) for value in inputs],
        False,
        _in_json,
        lambda parts: {kind: parts},
    )


def _with_one_type(values: list[Any], dtype: torch.dtype | None, is_module: bool) -> list[Any]:
    """The instances. Arrays become tensors of one type; so do numbers if they are for a module."""
    if values and all(isinstance(value, dict) and value.keys() == values[0].keys() for value in values):
        names = list(values[0])
        columns = [_with_one_type([value[name] for value in values], dtype, False) for name in names]
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
    if not (is_numeric(values) and (is_module or all(isinstance(value, list) for value in values))):
        return values
    try:
        return list(torch.tensor(values, dtype=dtype))
    except (ValueError, TypeError, RuntimeError, OverflowError):
        return values  # of different shapes: each is converted separately


def _without_base64(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if _is_base64(value):
        return decoded("b64", bytes_of(value["b64"]))
    return {name: _without_base64(item) if _is_base64(item) else item for name, item in value.items()}


def _is_base64(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() == {"b64"}


def _in_json(value: Any) -> Any:
    """``value`` as a part of a JSON document, with bytes in the form in which requests write them."""
    value = sendable(value)
    return {"b64": base64.b64encode(value).decode()} if isinstance(value, bytes) else value


ENVELOPES: dict[str, Parse] = {
    "": plain,
    "body": _body,
    "json": _instances,
    "kserve": _instances,
    "kservev2": tensors,
}
