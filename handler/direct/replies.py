"""Answers as TorchServe's frontend writes them: its headers, its errors, its JSON."""

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
# What the server makes itself: a handler that sets one would break the answer's frame.
_FRAME = frozenset((b"content-length", b"transfer-encoding", b"connection"))
_FORBIDDEN = (b"\r", b"\n", b"\0")


def as_json(value: object) -> bytes:
    """JSON as TorchServe writes it, for people."""
    return json.dumps(value, indent=2, ensure_ascii=False).encode(errors="replace") + b"\n"


def json_answer(value: object, status: int = 200) -> Answer:
    """An answer that holds JSON."""
    return Answer(status, JSON, (), as_json(value))


def error_answer(refusal: Refusal) -> Answer:
    """An error as TorchServe words it."""
    said = {"code": refusal.status, "type": refusal.kind, "message": refusal.message}
    return json_answer(said, refusal.status)


def head_of(answer: Answer, request_id: bytes, extra: Headers, *, ends: bool = False) -> Headers:
    """The headers of an answer, without its length.

    Args:
        answer: of a handler, or of the application's own.
        request_id: of the request, for ``x-request-id``.
        extra: headers of all answers, unless the answer has its own.
        ends: whether the server ends the connection; it does after an error, as TorchServe.
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
    """With what a handler has set; the last one of a name counts."""
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
    """A header's value in one line; what a handler says cannot begin another header."""
    if any(char in value for char in _FORBIDDEN):
        return b" ".join(value.replace(b"\0", b" ").split())
    return value


async def send_answer(send: Send, answer: Answer, headers: Headers) -> None:
    """Send a whole answer."""
    headers.append((b"content-length", b"%d" % len(answer.body)))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})


async def send_part(send: Send, answer: Answer, headers: Headers | None) -> None:
    """Send a part of a streamed answer; ``headers`` come with the first one."""
    if headers is not None:
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body, "more_body": answer.more})
