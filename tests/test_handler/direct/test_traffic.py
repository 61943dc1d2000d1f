"""What the direct address counts and logs of its answers."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import pytest
from answering_queue import AnsweringQueue, models_with

from interpool.handler.direct.application import Application
from interpool.handler.direct.job import Answer, Refusal
from interpool.handler.direct.models import Models, ModelVersion
from interpool.handler.direct.queue import ModelQueue, QueueSettings
from interpool.handler.direct.traffic import TIME_BOUNDS_S, Traffic


def test_answers_are_counted_by_status_and_by_how_long_they_took() -> None:
    traffic = Traffic()
    for status, seconds in ((200, 0.0005), (200, 0.001), (503, 0.0), (200, 1.2), (500, 3600.0)):
        traffic.note(status, seconds)
    described = traffic.describe("m/1.0", 3)
    assert described["answers"] == {"200": 3, "500": 1, "503": 1}
    assert (described["model"], described["waiting"]) == ("m/1.0", 3)
    assert sum(described["times"]) == 5
    assert described["times"][0] == 3  # a bound belongs to what is below it
    assert described["times"][TIME_BOUNDS_S.index(2.5)] == described["times"][-1] == 1
    assert described["seconds"] == pytest.approx(3601.2015)


def _ask(application: Application, **scope: Any) -> int:
    """The status of the answer to a request without a body."""
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b""}

    async def send(message: Any) -> None:
        sent.append(message)

    about = {"type": "http", "http_version": "1.1", "method": "GET", "query_string": b"", "headers": []}
    asyncio.run(application({**about, **scope}, receive, send))
    return int(sent[0]["status"])


def test_a_request_that_no_worker_takes_is_counted() -> None:
    async def prepared() -> Models:
        models = Models()
        models.add(ModelVersion("m", "2.0", ModelQueue(QueueSettings())))
        return models

    models = asyncio.run(prepared())
    assert _ask(Application(models), path="/predictions/m", raw_path=b"/predictions/m") == 503
    state = models.describe("127.0.0.1:1")
    assert state["address"] == "127.0.0.1:1"
    assert [(one["model"], one["answers"]) for one in state["models"]] == [("m/2.0", {"503": 1})]
    assert json.loads(json.dumps(state)) == state


def test_each_request_has_a_line_if_that_is_wanted(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "ACCESS_LOG")
    asked = {
        "path": "/ping\r\nx",
        "raw_path": b"/ping\r\nx",
        "query_string": b"a=1",
        "client": ("127.0.0.1", 5),
    }
    assert _ask(Application(Models()), **asked) == 404
    assert caplog.messages == []
    assert _ask(Application(Models(), has_access_lines=True), **asked) == 404
    (line,) = caplog.messages
    assert line.startswith('/127.0.0.1:5 "GET /ping\\x0d\\x0ax?a=1 HTTP/1.1" 404 ')
    assert line.rpartition(" ")[2].isdecimal()


def test_a_stream_that_breaks_has_a_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "ACCESS_LOG")
    queue = AnsweringQueue(Answer(200, b"", (), b"half", more=True), Refusal(500, "", "Worker died."))
    application = Application(models_with(queue), has_access_lines=True)
    assert _ask(application, path="/predictions/m") == 200
    assert '"GET /predictions/m HTTP/1.1" 200 ' in caplog.text
