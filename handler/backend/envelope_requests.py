"""What the request envelopes have in common: a request's meaning, and how its body is read."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from interpool.handler.backend.inputs import Arguments
from interpool.handler.errors import InputError


class Request(NamedTuple):
    """The meaning of one request of a batch.

    Attributes:
        calls: the calls that answer it.
        batched: whether the calls' tensors have the batch's dimension already.
        finish: makes the result of one call sendable; raises TypeError if it cannot be sent.
        answer: combines the finished parts of all calls.
    """

    calls: list[Arguments]
    batched: bool
    finish: Callable[[Any], Any]
    answer: Callable[[list[Any]], Any]


class Subject(NamedTuple):
    """What an envelope needs besides the request's fields."""

    is_module: bool
    explains: bool  # the request is for explanations
    request_id: str
    model: Mapping[str, Any]  # as the .mar's manifest describes it


Parse = Callable[[Mapping[str, Any], Mapping[str, Any], Subject], Request]


def body_of(row: Mapping[str, Any]) -> Any:
    """The content of a request's body; its fields if it is a form's."""
    return row.get("data") or row.get("body") or row


def object_in(content: Any) -> dict[str, Any]:
    """The JSON object in the content of a body.

    Raises:
        InputError: it contains none.
    """
    if isinstance(content, (bytes, bytearray, str)):
        try:
            content = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise InputError(f"this model's envelope takes JSON, and the body is none: {error}") from None
    if not isinstance(content, Mapping):
        raise InputError("this model's envelope takes a JSON object as the body")
    return dict(content)


def bytes_of(text: Any) -> bytes:
    """The bytes that a value of JSON means as base64.

    Raises:
        InputError: it is not base64.
    """
    try:
        return base64.b64decode(text, validate=True)
    except (TypeError, ValueError, binascii.Error) as error:
        raise InputError(f"{str(text)[:40]!r} is not base64: {error}") from None
