"""What becomes of a request before a worker has it, what it may cost, and how its answer is sent."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import tracemalloc
from collections.abc import AsyncIterator, MutableMapping
from typing import Any

import pytest
from answering_queue import AnsweringQueue, models_with
from fake_channels import until

from interpool.handler.direct.application import Application, Limits
from interpool.handler.direct.job import Answer
from interpool.handler.direct.models import Models
from interpool.handler.direct.queue import ModelQueue, QueueSettings
from interpool.handler.run.asking import ask

MB = 1 << 20


async def _asked(application: Application, chunks: AsyncIterator[bytes]) -> int:
    """The status that a request gets whose body comes so."""
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/predictions/m",
        "query_string": b"",
        "headers": [(b"transfer-encoding", b"chunked")],
    }
    statuses: list[int] = []

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": await anext(chunks, b""), "more_body": True}

    async def send(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    await application(scope, receive, send)
    return statuses[0]


def test_bodies_that_were_too_large_are_not_kept() -> None:
    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield bytes(MB)

    async def work() -> int:
        application = Application(Models(), Limits(4 * MB))
        assert await _asked(application, endless()) == 413
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(20):
            assert await _asked(application, endless()) == 413
        gc.collect()
        return tracemalloc.get_traced_memory()[0] - before

    tracemalloc.start()
    try:
        assert asyncio.run(work()) < 4 * MB
    finally:
        tracemalloc.stop()


def test_bodies_that_are_coming_have_a_bound_for_all_of_them() -> None:
    async def work() -> None:
        application = Application(Models(), Limits(2 * MB, coming_bytes=4 * MB))
        stopped = asyncio.Event()

        async def halting() -> AsyncIterator[bytes]:
            yield bytes(MB)
            await stopped.wait()
            while True:
                yield bytes(MB)

        waiting = [asyncio.create_task(_asked(application, halting())) for _ in range(4)]
        await asyncio.sleep(0.1)
        assert await _asked(application, halting()) == 503
        stopped.set()
        assert set(await asyncio.gather(*waiting)) <= {413, 503}
        assert await _asked(application, halting()) == 413

    asyncio.run(work())


def _answer(
    application: Application, body: bytes = b"", **scope: Any
) -> tuple[int, dict[bytes, bytes], bytes]:
    """Ask once, and return the answer's status, headers and body."""
    about = {
        "type": "http",
        "http_version": "1.1",
        "method": "POST",
        "path": "/predictions/m",
        "query_string": b"",
        "headers": [(b"content-length", b"%d" % len(body))],
    }
    sent: list[Any] = []

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": body}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    asyncio.run(application({**about, **scope}, receive, send))
    headers = sent[0]["headers"]
    assert len(dict(headers)) == len(headers), headers
    return sent[0]["status"], dict(headers), b"".join(each["body"] for each in sent[1:])


SAID = Answer(200, b"text/plain", (), b"said")


def test_a_worker_gets_headers_in_latin_1_as_http_has_them() -> None:
    queue = AnsweringQueue(SAID)
    headers = [(b"content-length", b"0"), (b"x-asked", b"gr\xf6\xdfe")]
    assert (
        _answer(Application(models_with(queue)), headers=headers, path="/predictions/m/1.0/\u00f6")[0] == 200
    )
    ((_, received, _),) = queue.requests
    assert received[b"x-asked"] == b"gr\xf6\xdfe"
    assert received[b"url_path"] == b"\xf6"


@pytest.mark.parametrize(
    ("more", "header"),
    [
        ("\u8def/\U0001f642", "\u8def/\U0001f642"),
        ("\u8def\udcff", "\u8def?"),  # as servers that decode with surrogates give it
        ("\ufffd", "\ufffd"),
    ],
)
def test_a_path_of_other_characters_reaches_the_worker_as_text(more: str, header: str) -> None:
    queue = AnsweringQueue(SAID)
    assert _answer(Application(models_with(queue)), path=f"/predictions/m/1.0/{more}")[0] == 200
    ((_, received, _),) = queue.requests
    assert received[b"url_path"] == header


def test_a_querys_values_reach_the_worker_in_utf_8() -> None:
    queue = AnsweringQueue(SAID)
    query = b"%E8%B7%AF=%F0%9F%99%82&bad=%FF&half=%ED%A0%BD"
    assert _answer(Application(models_with(queue)), path="/m/predict", query_string=query)[0] == 200
    ((_, _, parameters),) = queue.requests
    assert parameters[:3] == [
        ("\u8def".encode(), b"", "\U0001f642".encode()),
        (b"bad", b"", "\ufffd".encode()),
        (b"half", b"", "\ufffd".encode()),
    ]


@pytest.mark.parametrize("version", ["1.0", "1.1", "2", "3"])
def test_a_body_without_a_length_reaches_the_worker(version: str) -> None:
    queue = AnsweringQueue(SAID)
    _answer(Application(models_with(queue)), b"whole", http_version=version, headers=[])
    ((_, _, parameters),) = queue.requests
    assert parameters == [(b"body", b"", b"whole")]


@pytest.mark.parametrize(
    ("root", "path", "status"),
    [
        ("", "/predictions/m", 200),
        ("/", "/predictions/m", 200),
        ("/pre", "/predictions/m", 200),
        ("/pre", "/pre/predictions/m", 200),
        ("/pre/", "/pre/predictions/m", 200),
        ("/predictions", "/predictions/m/predict", 200),
        ("/pre", "/prepredictions/m", 404),
    ],
)
def test_a_path_is_cut_after_the_whole_name_that_an_application_is_mounted_at(
    root: str, path: str, status: int
) -> None:
    application = Application(models_with(AnsweringQueue(SAID)))
    assert _answer(application, root_path=root, path=path)[0] == status


def test_a_request_that_its_server_cancels_is_given_up_and_reaches_no_worker() -> None:
    async def work() -> None:
        queue = ModelQueue(QueueSettings())
        queue.wanted = 1
        asked = asyncio.create_task(ask(Application(models_with(queue)), "m", "text"))
        await until(lambda: len(queue))
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        assert not len(queue)

    asyncio.run(work())


def test_a_server_that_cancels_the_lifespan_has_the_models_closed() -> None:
    steps: list[str] = []

    @contextlib.asynccontextmanager
    async def models() -> AsyncIterator[None]:
        steps.append("opened")
        try:
            yield
        finally:
            steps.append("closed")

    async def work() -> None:
        coming: asyncio.Queue[MutableMapping[str, Any]] = asyncio.Queue()
        sent: asyncio.Queue[MutableMapping[str, Any]] = asyncio.Queue()
        application = Application(Models(), lifespan=models)
        living = asyncio.create_task(application({"type": "lifespan"}, coming.get, sent.put))
        await coming.put({"type": "lifespan.startup"})
        assert await sent.get() == {"type": "lifespan.startup.complete"}
        living.cancel()
        with pytest.raises(asyncio.CancelledError):
            await living
        assert steps == ["opened", "closed"]

    asyncio.run(work())
