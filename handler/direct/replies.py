"""Writes answers as TorchServe's frontend does: its headers, its errors, its JSON."""

from __future__ import annotations

import json
import re
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
_NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_CONTROL = re.compile(rb"[\x00-\x08\n-\x1f\x7f]")
# Clients read what follows the head of such an answer as the next answer.
_WITHOUT_BODY = frozenset((204, 205, 304))
WITHOUT_LENGTH = frozenset((204, 304))
"""The statuses of answers without a ``content-length``."""


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


def framed(answer: Answer) -> Answer:
    """A handler's answer as HTTP can send it.

    Args:
        answer: an answer, or the first part of a stream.

    Returns:
        The answer; without a body if its status allows none; an error if its status is not a final one.
    """
    if not 200 <= answer.status < 600:
        said = f"The model answered with status {answer.status}. An answer's status is 200 to 599."
        return error_answer(Refusal(500, "InternalServerException", said))
    if answer.status in _WITHOUT_BODY:
        return answer._replace(body=b"", more=False)
    return answer


def head_of(answer: Answer, request_id: bytes, extra: Headers, *, ends: bool = False) -> Headers:
    """The headers of an answer, without its length.

    Args:
        answer: an answer of a handler, or the application's own.
        request_id: the request's id, for ``x-request-id``.
        extra: headers of all answers; one that the answer has already is left out.
        ends: whether the server ends the connection. It does after an error, as TorchServe does.
    """
    headers: Headers = [(b"content-type", _safe(answer.content_type))] if answer.content_type else []
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
        (name, _safe(value)) for name, value in own.items() if name not in _FRAME and _NAME.fullmatch(name)
    ]


def _safe(value: bytes) -> bytes:
    """A handler's header value in one line, so that it cannot begin another header."""
    if _CONTROL.search(value):
        return b" ".join(_CONTROL.sub(b" ", value).split())
    return value


async def send_answer(send: Send, answer: Answer, headers: Headers) -> None:
    """Send a whole answer.

    Args:
        send: sends its ASGI messages.
        answer: the answer.
        headers: its headers without the length. This adds it to the list if the status allows one.
    """
    if answer.status not in WITHOUT_LENGTH:
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
