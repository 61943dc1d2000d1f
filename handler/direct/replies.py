"""Writes answers as TorchServe's frontend does: its headers, its errors, its JSON."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

from interpool.handler.direct.job import Answer, Refusal

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

JSON = b"application/json"
_NOT_CACHED: Headers = [
    (b"pragma", b"no-cache"),
    (b"cache-control", b"no-cache; no-store, must-revalidate, private"),
    (b"expires", b"Thu, 01 Jan 1970 00:00:00 UTC"),
]
_GOES_ON: Headers = [*_NOT_CACHED, (b"connection", b"keep-alive")]
_ENDS: Headers = [*_NOT_CACHED, (b"connection", b"close")]
# Headers that the server makes itself: a handler that sets one would break the answer's framing.
_FRAME = frozenset((b"content-length", b"transfer-encoding", b"connection"))
_FORBIDDEN = (b"\r", b"\n", b"\0")


def as_json(value: object) -> bytes:
    """JSON as TorchServe writes it, indented for people."""
    return json.dumps(value, indent=2, ensure_ascii=False).encode(errors="replace") + b"\n"


def json_answer(value: object, status: int = 200) -> Answer:
    """An answer that holds JSON.

    Args:
        value: the JSON value.
        status: the answer's HTTP status.
    """
    return Answer(status, JSON, (), as_json(value))


def error_answer(refusal: Refusal) -> Answer:
    """An error as TorchServe words it."""
    said = {"code": refusal.status, "type": refusal.kind, "message": refusal.message}
    return json_answer(said, refusal.status)


def head_of(answer: Answer, request_id: bytes, extra: Headers, *, ends: bool = False) -> Headers:
    """The headers of an answer, without its length.

    Args:
        answer: an answer of a handler, or the application's own.
        request_id: the request's id, for ``x-request-id``.
        extra: headers of all answers; one that the answer has already is left out.
        ends: whether the server ends the connection. It does after an error, as TorchServe does.
    """
    headers: Headers = [(b"content-type", answer.content_type)] if answer.content_type else []
    if answer.headers:
        headers = _merged(headers, answer.headers)
    headers.append((b"x-request-id", request_id))
    if extra:
        given = {name for name, _ in headers}
        headers += [each for each in extra if each[0] not in given]
    headers += _ENDS if ends or answer.status >= 400 else _GOES_ON
    return headers


def _merged(headers: Headers, others: Iterable[tuple[bytes, bytes]]) -> Headers:
    """The headers with those that a handler has set; of several with one name, the last one counts."""
    own = {name.lower(): value for name, value in others}
    kept = [each for each in headers if each[0] not in own]
    return kept + [
        (name, _safe(value)) for name, value in own.items() if name not in _FRAME and _is_name(name)
    ]


def _is_name(name: bytes) -> bool:
    return (
        bool(name)
        and name.isascii()
        and not any(char <= 32 or char in b'"(),/:;<=>?@[\\]{}' for char in name)
    )


def _safe(value: bytes) -> bytes:
    """A handler's header value in one line, so that it cannot begin another header."""
    if any(char in value for char in _FORBIDDEN):
        return b" ".join(value.replace(b"\0", b" ").split())
    return value


async def send_answer(send: Send, answer: Answer, headers: Headers) -> None:
    """Send a whole answer.

    Args:
        send: sends its ASGI messages.
        answer: the answer.
        headers: its headers without the length, which this adds to the list.
    """
    headers.append((b"content-length", b"%d" % len(answer.body)))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})


async def send_part(send: Send, answer: Answer, headers: Headers | None) -> None:
    """Send a part of a streamed answer.

    Args:
        send: sends its ASGI messages.
        answer: the part.
        headers: the answer's headers if this is the first part; None for the others.
    """
    if headers is not None:
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body, "more_body": answer.more})
