"""Sends requests to the application from Python, without a socket: makes bodies of values, and vice versa."""

from __future__ import annotations

import contextlib
import io
import json
import sys
from typing import Any
from urllib.parse import quote

from interpool.handler.direct.application import Application
from interpool.handler.errors import InputError, ServeError


def body_of(value: Any) -> tuple[str, bytes]:
    """The content type and the body of a request with this value.

    Args:
        value: bytes and texts are sent as they are, and an array as npy. Tensors, alone or in dicts and
            lists, are sent as ``torch.save`` writes them. All else is sent as JSON, which has no arrays.

    Raises:
        InputError: the value cannot be sent in any of these forms.
    """
    try:
        return _body_of(value)
    except Exception as error:  # numpy, torch and a value's own methods raise anything
        raise InputError(
            f"a value of type {type(value).__name__} cannot be sent to a model: {error}"
        ) from error


def _body_of(value: Any) -> tuple[str, bytes]:
    if isinstance(value, bytes | bytearray | memoryview):
        return "application/octet-stream", bytes(value)
    if isinstance(value, str):
        return "text/plain", value.encode()
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None and isinstance(value, numpy.ndarray):
        file = io.BytesIO()
        numpy.save(file, value, allow_pickle=False)
        return "application/x-npy", file.getvalue()
    if torch is not None and _has_tensors(value, torch.Tensor):
        file = io.BytesIO()
        torch.save(value, file)
        return "application/octet-stream", file.getvalue()
    return "application/json", json.dumps(value).encode()


def _has_tensors(value: Any, kind: type) -> bool:
    if isinstance(value, dict):
        return any(_has_tensors(each, kind) for each in value.values())
    if isinstance(value, list | tuple):
        return any(_has_tensors(each, kind) for each in value)
    return isinstance(value, kind)


async def ask(application: Application, model: str, value: Any, version: str | None = None) -> Any:
    """Ask a model, and return its whole answer; the parts of a stream are joined.

    Args:
        application: the application that has the model.
        model: the model's name.
        value: the request; see ``body_of``.
        version: the model's version; None: the default version.

    Returns:
        The value of a JSON answer, the text of a text answer, else bytes. An answer that a handler gives as a
        list has no content type, and is bytes. So is a text that is not UTF-8.

    Raises:
        InputError: the value or the request cannot be used.
        ServeError: there is no such model, it has failed, or its answer broke off.
    """
    kind, body = body_of(value)
    path = f"/predictions/{model}" + (f"/{version}" if version is not None else "")
    headers = [(b"content-type", kind.encode()), (b"content-length", b"%d" % len(body))]
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "POST",
        "path": path,
        "raw_path": quote(path).encode(),
        "query_string": b"",
        "headers": headers,
    }
    status, said, parts = 0, b"", []
    is_whole = False

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body}

    async def send(message: Any) -> None:
        nonlocal status, said, is_whole
        if message["type"] == "http.response.start":
            status = message["status"]
            said = dict(message["headers"]).get(b"content-type", b"")
        else:
            parts.append(message["body"])
            is_whole = not message.get("more_body")

    await application(scope, receive, send)
    answer = b"".join(parts)
    if status >= 400:
        text = answer.decode(errors="replace")
        with contextlib.suppress(ValueError, KeyError, TypeError):
            text = json.loads(text)["message"]
        raise (InputError if status == 400 else ServeError)(f"model {model!r} answered {status}: {text}")
    if not is_whole:
        raise ServeError(f"model {model!r} broke its answer off after {len(answer)} bytes")
    with contextlib.suppress(ValueError):  # the content type is wrong, or names another encoding
        if said.startswith(b"application/json"):
            return json.loads(answer)
        if said.startswith(b"text/"):
            return answer.decode()
    return answer
