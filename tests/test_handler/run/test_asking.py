"""A model's answer as a value of Python's: what its content type promises, or else its bytes."""

from __future__ import annotations

import asyncio

import pytest

from interpool.handler.direct.application import Application
from interpool.handler.direct.models import Models
from interpool.handler.direct.replies import Receive, Scope, Send
from interpool.handler.run.asking import ask


class _Says(Application):
    """Answers every request with this."""

    def __init__(self, content_type: bytes, body: bytes) -> None:
        super().__init__(Models())
        self._content_type = content_type
        self._body = body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-type", self._content_type)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": self._body})


@pytest.mark.parametrize(
    ("content_type", "body", "value"),
    [
        (b"text/plain; charset=utf-8", "größe".encode(), "größe"),
        (b"text/plain", b"gr\xf6\xdfe", b"gr\xf6\xdfe"),
        (b"application/json", b"[1, null]", [1, None]),
        (b"application/json", b"{broken", b"{broken"),
        (b"image/png", b"\x89PNG", b"\x89PNG"),
        (b"", b"[1]", b"[1]"),
    ],
)
def test_an_answer_is_what_its_content_type_says_or_else_bytes(
    content_type: bytes, body: bytes, value: object
) -> None:
    assert asyncio.run(ask(_Says(content_type, body), "m", {})) == value
