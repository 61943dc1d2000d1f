"""Values of Python's as requests, and answers as values: what their content type promises, or else bytes."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
import torch
from answering_queue import AnsweringQueue, models_with

from interpool.handler.direct.application import Application
from interpool.handler.direct.job import Answer, Refusal
from interpool.handler.direct.models import Models
from interpool.handler.direct.replies import Receive, Scope, Send
from interpool.handler.errors import InputError, ServeError
from interpool.handler.run.asking import ask, body_of


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


HALF = Answer(200, b"text/plain", (), b"first half, ", more=True)


def test_the_parts_of_a_stream_are_joined() -> None:
    queue = AnsweringQueue(HALF, HALF._replace(body=b"second", more=False))
    assert asyncio.run(ask(Application(models_with(queue)), "m", {})) == "first half, second"


def test_a_stream_that_broke_is_an_error() -> None:
    queue = AnsweringQueue(HALF, Refusal(500, "InternalServerException", "Worker died."))
    with pytest.raises(ServeError, match="broke its answer off"):
        asyncio.run(ask(Application(models_with(queue)), "m", {}))


def test_a_call_is_answered_by_an_application_that_logs_requests(caplog: pytest.LogCaptureFixture) -> None:
    application = Application(models_with(AnsweringQueue(HALF._replace(more=False))), has_access_lines=True)
    with caplog.at_level("INFO", "ACCESS_LOG"):
        assert asyncio.run(ask(application, "m", {})) == "first half, "
    assert '"POST /predictions/m HTTP/1.1" 200 ' in caplog.text


def _endless() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


class _Odd:
    def __reduce__(self) -> Any:
        raise OSError("it cannot be pickled")


@pytest.mark.parametrize(
    "value",
    [
        object(),
        {"x": np.ones(2)},
        np.array([{}], dtype=object),
        {"x": torch.ones(1), "f": lambda: 0},
        {"x": torch.ones(1), "o": _Odd()},
        _endless(),
        "\ud800",
    ],
    ids=["object", "array in a dict", "array of objects", "function", "odd", "endless", "half a character"],
)
def test_a_value_that_cannot_be_sent_is_an_input_error(value: object) -> None:
    with pytest.raises(InputError, match=f"type {type(value).__name__} cannot be sent to a model"):
        body_of(value)
