"""What a client may cost that sends no whole request, or reads no answer: bounded time and memory."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import resource
import socket
import ssl
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest
from answering_queue import AnsweringQueue, models_with
from guarded import certified
from waiting import wait_for

from interpool.handler.direct import job as job_module
from interpool.handler.direct import server as http_server
from interpool.handler.direct.application import Application, Limits
from interpool.handler.direct.job import Answer, Job, Refusal
from interpool.handler.direct.models import Models
from interpool.handler.direct.queue import ModelQueue, QueueSettings
from interpool.handler.direct.replies import Receive, Scope, Send, send_answer

HEAD = b"POST /predictions/m HTTP/1.1\r\nHost: x\r\n"
LARGE = 32 << 20


class _Echo(Application):
    """Answers with the names of the request's headers and its body, or with much."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = b",".join(name for name, _ in scope["headers"])
        if scope["path"] == "/wait":
            await asyncio.sleep(2.5)
        elif scope["path"] == "/large":
            body = b"x" * LARGE
        elif scope["path"] != "/early":
            body, more = body + b"|", True
            while more:
                message = await receive()
                body += message["body"]
                more = message["more_body"]
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": body})


@contextlib.contextmanager
def _served(application: Application | None = None, **settings: str) -> Iterator[tuple[str, int]]:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    where = listener.getsockname()
    served = http_server.server(application or _Echo(Models()), [listener], **settings)
    thread = threading.Thread(target=served.run)
    thread.start()
    try:
        wait_for(lambda: served.started or not thread.is_alive(), "the server")
        yield where
    finally:
        served.should_exit = True
        thread.join(30)
        assert not thread.is_alive()
        assert listener.fileno() < 0


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, int]]:
    monkeypatch.setattr(http_server, "REQUEST_S", 1.0)
    monkeypatch.setattr(http_server, "LOOK_S", 0.1)
    with _served() as where:
        yield where


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> int:
    """How many connections a server may have that is started now."""
    monkeypatch.setattr(http_server, "most_connections", lambda: 4)
    return 4


def _ask(connection: socket.socket) -> bytes:
    """The status line of an answer, which is read to its end."""
    connection.settimeout(30)
    connection.sendall(b"GET /x HTTP/1.1\r\nHost: x\r\n\r\n")
    said = head = body = b""
    while not head or b"content-length: %d" % len(body) not in head:
        part = connection.recv(1 << 16)
        if not part:
            raise ConnectionError("the server has closed the connection")
        said += part
        head, _, body = said.partition(b"\r\n\r\n")
    return said.partition(b"\r\n")[0]


def _until_closed(connection: socket.socket) -> bytes:
    """What the server still says before it closes a connection."""
    connection.settimeout(30)
    said = b""
    with contextlib.suppress(ConnectionError):
        while part := connection.recv(1 << 16):
            said += part
    return said


STOPPED = [
    b"",
    b"POST /predictions/m HT",
    HEAD + b"Content-Length: 100\r\n\r\nhalf",
    HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nha",
    HEAD + b"Transfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
    HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\nTrailer",
    HEAD + b"Content-Length: 0\r\n\r\n" + HEAD,
]


def test_clients_that_stop_within_a_request_are_cut_off(address: tuple[str, int]) -> None:
    with contextlib.ExitStack() as stack:
        stopped = [(stack.enter_context(socket.create_connection(address)), data) for data in STOPPED]
        for connection, data in stopped:
            connection.sendall(data)
        for connection, _ in stopped:
            _until_closed(connection)


def test_a_client_that_sends_a_byte_now_and_then_is_cut_off(address: tuple[str, int]) -> None:
    with socket.create_connection(address) as connection:
        connection.sendall(HEAD + b"Content-Length: 100000\r\n\r\n")
        for _ in range(300):
            time.sleep(0.1)
            try:
                connection.sendall(b"x")
            except ConnectionError:
                return
        raise AssertionError("it may send for ever")


def test_a_client_that_reads_no_answer_is_cut_off(address: tuple[str, int]) -> None:
    with socket.create_connection(address) as connection:
        connection.sendall(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
        time.sleep(3)
        assert len(_until_closed(connection)) < LARGE


def test_a_client_that_reads_its_answer_slowly_gets_all_of_it(address: tuple[str, int]) -> None:
    with socket.create_connection(address) as connection:
        connection.settimeout(30)
        connection.sendall(b"GET /large HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        received = 0
        while part := connection.recv(1 << 20, socket.MSG_WAITALL):
            received += len(part)
            time.sleep(0.1)
        assert received > LARGE


def test_a_request_that_waits_for_the_one_before_it_is_not_late(address: tuple[str, int]) -> None:
    with socket.create_connection(address) as connection:
        connection.settimeout(30)
        connection.sendall(b"GET /wait HTTP/1.1\r\nHost: x\r\n\r\n" + HEAD + b"Content-Length: 4\r\n\r\n")
        time.sleep(2)
        connection.sendall(b"body")
        said = b""
        while said.count(b"HTTP/1.1 200") < 2:
            part = connection.recv(1 << 16)
            assert part, said
            said += part


def test_trailers_are_no_headers(address: tuple[str, int]) -> None:
    with socket.create_connection(address) as connection:
        connection.sendall(HEAD + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n")
        connection.sendall(b"1\r\nx\r\n0\r\nAuthorization: mine\r\n\r\n")
        said = _until_closed(connection)
        assert b"transfer-encoding" in said
        assert b"authorization" not in said


@pytest.mark.parametrize(
    "piece", [b"x: " + b"y" * 1000 + b"\r\n", b"y" * 1000], ids=["many trailers", "a long trailer"]
)
def test_trailers_without_end_are_refused(address: tuple[str, int], piece: bytes) -> None:
    with socket.create_connection(address) as connection, contextlib.suppress(ConnectionError):
        connection.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nx: ")
        for _ in range(20_000):
            connection.sendall(piece)
        raise AssertionError("they were taken")


def test_a_connection_beyond_the_bound_is_refused_and_the_others_go_on(few: int) -> None:
    with _served() as where, contextlib.ExitStack() as stack:
        idle = [stack.enter_context(socket.create_connection(where)) for _ in range(few)]
        assert all(_ask(each) == b"HTTP/1.1 200 OK" for each in idle)
        for _ in range(100):
            with socket.create_connection(where) as connection:
                said = _until_closed(connection)
                assert said.startswith(b"HTTP/1.1 503 ")
                assert b"too many connections" in said
        assert all(_ask(each) == b"HTTP/1.1 200 OK" for each in idle)
        idle.pop().close()
        wait_for(lambda: _is_answered(where), "room for another connection")


def test_as_many_clients_as_the_bound_allows_may_come_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "most_connections", lambda: 200)
    with _served() as where, contextlib.ExitStack() as stack:
        clients = [stack.enter_context(socket.socket()) for _ in range(200)]
        for each in clients:
            each.setblocking(False)
            each.connect_ex(where)
        for each in clients:
            each.settimeout(30)
        assert all(_ask(each) == b"HTTP/1.1 200 OK" for each in clients)


def _is_answered(where: tuple[str, int], context: ssl.SSLContext | None = None) -> bool:
    with contextlib.ExitStack() as stack, contextlib.suppress(ConnectionError, ssl.SSLError):
        connection = stack.enter_context(socket.create_connection(where))
        if context is not None:
            connection = context.wrap_socket(connection, server_hostname=where[0])
            stack.enter_context(connection)
        return _ask(connection) == b"HTTP/1.1 200 OK"
    return False


def test_clients_that_connect_and_say_nothing_by_tls_count_as_connections(
    few: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "HANDSHAKE_S", 1.0)
    key, certificate = map(str, certified(tmp_path))
    with _served(ssl_keyfile=key, ssl_certfile=certificate) as where, contextlib.ExitStack() as stack:
        silent = [stack.enter_context(socket.create_connection(where)) for _ in range(few)]
        with socket.create_connection(where) as connection:
            assert _until_closed(connection) == b""
        for each in silent:
            _until_closed(each)
        context = ssl.create_default_context(cafile=certificate)
        wait_for(lambda: _is_answered(where, context), "room for another connection")


def test_a_server_without_descriptors_left_goes_on_once_it_has_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "PAUSE_S", 0.1)
    with _served() as where, contextlib.ExitStack() as stack:
        before = stack.enter_context(socket.create_connection(where))
        assert _ask(before) == b"HTTP/1.1 200 OK"
        waiting = socket.socket()
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (waiting.fileno() + 1, hard))
            held = []
            with contextlib.suppress(OSError):
                while True:
                    held.append(os.dup(0))
            waiting.connect(where)
            assert _ask(before) == b"HTTP/1.1 200 OK"
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            for each in held:
                os.close(each)
        with waiting:
            assert _ask(waiting) == b"HTTP/1.1 200 OK"


def test_a_quarter_of_the_descriptors_may_be_connections() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 1024), hard))
        assert http_server.most_connections() == min(soft, 1024) // 4
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_small_answers_are_not_held_back(address: tuple[str, int]) -> None:
    with socket.create_connection(address) as connection:
        _ask(connection)
        took = []
        for _ in range(20):
            began = time.monotonic()
            _ask(connection)
            took.append(time.monotonic() - began)
    assert statistics.median(took) < 0.03  # delayed acknowledgements take 40 ms


class _Answers(Application):
    """Begins an answer; then ends it, goes on with it, or fails, as the path says."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"x-one", b"1")]})
        if scope["path"] == "/fails":
            raise RuntimeError("after the head")
        if scope["path"] == "/parts":
            await send({"type": "http.response.body", "body": b"one", "more_body": True})
        await send({"type": "http.response.body", "body": b"two"})


@pytest.mark.parametrize(
    ("request_line", "head", "body"),
    [
        (b"GET /whole", (b"200 OK", b"x-one: 1", b"content-length: 3"), b"two"),
        (
            b"GET /parts",
            (b"200 OK", b"x-one: 1", b"transfer-encoding: chunked"),
            b"3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n",
        ),
        (b"HEAD /whole", (b"200 OK", b"x-one: 1"), b""),
        (b"GET /fails", (b"500 Internal Server Error", b"content-length: 21"), b"Internal Server Error"),
    ],
    ids=lambda value: value.decode() if isinstance(value, bytes) else "",
)
def test_an_answer_has_the_framing_that_its_parts_need(
    request_line: bytes, head: tuple[bytes, ...], body: bytes
) -> None:
    with _served(_Answers(Models())) as where, socket.create_connection(where) as connection:
        connection.sendall(request_line + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        said, _, rest = _until_closed(connection).partition(b"\r\n\r\n")
    lines = said.split(b"\r\n")
    assert lines[0] == b"HTTP/1.1 " + head[0]
    assert {*head[1:], b"connection: close"} <= {*lines}
    assert len(lines) == len({line.partition(b":")[0] for line in lines})
    assert rest == body


def _answer(*answers: Answer | Refusal, head: bytes = HEAD) -> tuple[bytes, bytes]:
    """What a client gets for a model's answer: the head, and all that follows until the connection ends.

    The client asks twice on one connection. The second request makes the server end it.
    """
    application = Application(models_with(AnsweringQueue(*answers)))
    with _served(application) as where, socket.create_connection(where) as connection:
        connection.sendall(head + b"\r\n" + b"GET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n")
        first, _, rest = _until_closed(connection).partition(b"\r\n\r\n")
        return first, rest


@pytest.mark.parametrize("parts", [1, 3], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    ("status", "length"), [(204, b""), (205, b"content-length: 0"), (304, b"")], ids=["204", "205", "304"]
)
def test_no_body_follows_an_answer_whose_status_allows_none(status: int, length: bytes, parts: int) -> None:
    body = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nEVIL"
    answers = (Answer(status, b"text/plain", (), body, part < parts - 1) for part in range(parts))
    head, rest = _answer(*answers)
    assert head.startswith(b"HTTP/1.1 %d " % status)
    lines = [line for line in head.lower().split(b"\r\n") if line.startswith((b"content-l", b"transfer-"))]
    assert lines == ([length] if length else [])
    assert rest.startswith(b"HTTP/1.1 404 ")


@pytest.mark.parametrize("more", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("status", [-1, 0, 100, 101, 199, 600, 2**31 - 1])
def test_a_status_that_no_answer_may_have_is_a_server_error(status: int, more: bool) -> None:
    head, rest = _answer(Answer(status, b"text/plain", (), b"x", more))
    assert head.startswith(b"HTTP/1.1 500 ")
    assert b"answered with status %d." % status in rest


@pytest.mark.parametrize(
    ("content_type", "header"),
    [
        (b"text/plain", (b"x-a", b"esc\x1b[0m")),
        (b"text/plain", (b"x-a", b"tab\tand\x7f")),
        (b"text/plain", (b"x\x7f", b"a")),
        (b"text/plain\r\nx-b: y", (b"x-a", b"1")),
        (b"text/\0plain", (b"x-a", b"1")),
    ],
)
def test_control_characters_in_a_models_headers_cost_no_answer(
    content_type: bytes, header: tuple[bytes, bytes]
) -> None:
    head, rest = _answer(Answer(200, content_type, (header,), b"said"))
    assert head.startswith(b"HTTP/1.1 200 OK\r\ncontent-type: text/")
    assert b"\r\nx-b" not in head
    assert rest.startswith(b"saidHTTP/1.1 404 ")


@pytest.mark.parametrize(
    ("sent", "seen"),
    [
        (b"a%C3%B6", b"a\xf6"),
        (b"a%ED%A0%BDb", "a\ufffdb"),  # half a character, of UTF-16
        (b"%ED%A0%BD%ED%B9%82", "\ufffd\ufffd"),
        (b"%ED%9F%BF%FF", "\ud7ff\ufffd"),
    ],
)
def test_a_path_reaches_the_worker_as_torchserve_decodes_it(sent: bytes, seen: bytes | str) -> None:
    queue = AnsweringQueue(Answer(200, b"", (), b"said"))
    with _served(Application(models_with(queue))) as where, socket.create_connection(where) as connection:
        connection.sendall(
            b"GET /predictions/m/1.0/%b HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n" % sent
        )
        assert _until_closed(connection).startswith(b"HTTP/1.1 200 ")
    ((_, headers, _),) = queue.requests
    assert headers[b"url_path"] == seen


UPGRADE = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n"
WEBSOCKET = b"Connection: keep-alive, Upgrade\r\nupgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
LAST = b"GET /last HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


def _sized(body: bytes) -> bytes:
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


def _chunked(body: bytes) -> bytes:
    chunk = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
    return b"Transfer-Encoding: chunked\r\n\r\n%b0\r\n\r\n" % chunk


def _exchanged(where: tuple[str, int], *packets: bytes) -> list[bytes]:
    """The answers to what is sent in these packets, each from its status on."""
    with socket.create_connection(where) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for each in packets:
            connection.sendall(each)
            time.sleep(0.05)
        return _until_closed(connection).split(b"HTTP/1.1 ")[1:]


@pytest.mark.parametrize("framed", [_sized, _chunked])
@pytest.mark.parametrize("asking", [UPGRADE, WEBSOCKET], ids=["h2c", "websocket"])
@pytest.mark.parametrize("body", [b"[1, 2, 3]", SMUGGLED, b""], ids=["JSON", "a request", "none"])
def test_a_request_for_another_protocol_is_answered_as_if_it_were_an_ordinary_one(
    address: tuple[str, int], asking: bytes, body: bytes, framed: Callable[[bytes], bytes]
) -> None:
    data = HEAD + asking + framed(body) + LAST
    end = data.index(b"\r\n\r\n") + 4
    for packets in (
        (data,),
        (data[:end], data[end:]),
        (data[: end - 1], data[end - 1 : end + 1], data[end + 1 :]),
    ):
        first, last = _exchanged(address, *packets)
        assert first.startswith(b"200 ")
        assert b"|" + body in first
        assert b"smuggled" not in first.replace(body, b"")
        assert last.startswith(b"200 ")


def test_requests_for_another_protocol_may_follow_each_other(address: tuple[str, int]) -> None:
    data = (HEAD + UPGRADE + _sized(b"one")) + (HEAD + b"\r\n") + (HEAD + WEBSOCKET + _chunked(b"two")) + LAST
    answers = _exchanged(address, data)
    assert [each.partition(b"|")[2].partition(b"\r\n")[0] for each in answers] == [b"one", b"", b"two", b""]


def test_a_request_for_another_protocol_may_end_the_connection(address: tuple[str, int]) -> None:
    asking = b"Connection: close, Upgrade\r\nUpgrade: h2c\r\n"
    (answer,) = _exchanged(address, HEAD + asking + _sized(b"body") + LAST)
    assert b"|body" in answer
    assert b"connection: close" in answer


@pytest.mark.parametrize(
    "data",
    [
        b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n" + SMUGGLED,
        b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n" + _sized(SMUGGLED),
        b"CONNECT /x HTTP/1.1\r\nHost: x\r\n\r\n" + SMUGGLED,
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + SMUGGLED,
        HEAD + UPGRADE + b"Transfer-Encoding: chunked\r\n" + _sized(b"0\r\n\r\n" + SMUGGLED),
        HEAD + UPGRADE + b"Transfer-Encoding: chunked, gzip\r\n\r\n" + SMUGGLED,
        HEAD + UPGRADE + b"Transfer-Encoding: gzip\r\n\r\n" + SMUGGLED,
        HEAD + UPGRADE + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n" + SMUGGLED,
        HEAD + UPGRADE + b"Content-Length: x\r\n\r\n" + SMUGGLED,
        HEAD + UPGRADE + b"Transfer-Encoding: chunked\r\n\r\nx\r\n" + SMUGGLED,
        HEAD + b"Content-Length: -5\r\n\r\n" + SMUGGLED,
        b"GET /x HTTP/1.1\r\nHo st: x\r\n\r\n" + SMUGGLED,
        b"GET /x HTTP/9.9\r\n\r\n" + SMUGGLED,
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # TLS
    ],
)
def test_bytes_after_a_request_without_a_clear_end_are_not_answered(
    address: tuple[str, int], data: bytes
) -> None:
    answers = _exchanged(address, data)
    assert [each[:4] for each in answers][-1:] == [b"400 "]
    assert b"smuggled" not in b"".join(answers)
    assert len(answers) == 1


def test_bytes_after_a_head_that_is_too_large_are_not_answered(address: tuple[str, int]) -> None:
    long = b"y" * (1 << 16)
    headers = [HEAD + asking + b"x: " + long for asking in (b"", UPGRADE)]
    for head in (*headers, b"GET /" + long + b" HTTP/1.1"):
        (answer,) = _exchanged(address, head + b"\r\n\r\n" + LAST)
        assert answer.startswith(b"400 ")
        assert b"too large" in answer


BAD_TARGETS = {
    "no path": b"http://host",
    "no port": b"http://host:70000/",
    "long target": b"/" + b"x" * (1 << 16),
    "raw bytes": "/predictions/mod\u00e8le".encode(),
}


@pytest.mark.parametrize("is_first", [True, False], ids=["first", "later"])
@pytest.mark.parametrize("target", BAD_TARGETS.values(), ids=BAD_TARGETS)
def test_a_target_that_is_no_url_is_refused(
    address: tuple[str, int], target: bytes, is_first: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_connection(address) as connection:
        if not is_first:
            assert _ask(connection) == b"HTTP/1.1 200 OK"
        connection.sendall(b"GET %b HTTP/1.1\r\nHost: x\r\n\r\n" % target + SMUGGLED)
        (answer,) = _until_closed(connection).split(b"HTTP/1.1 ")[1:]
    assert answer.startswith(b"400 ")
    assert all(record.levelno < logging.ERROR for record in caplog.records)


QUIET = [
    (b"GET /x HTTP/1.1\r\nHost: x\r\n\r\n",),
    (b"GET /x HTTP/1.1\r\nHost: x\r\n\r\n", *[b"\r\n"] * 5),  # empty lines
    (b"POST /early HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n", *[b"x"] * 5),  # a body after its answer
]


def test_clients_that_ask_no_more_are_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "KEEP_ALIVE_S", 1)
    monkeypatch.setattr(http_server, "LOOK_S", 0.1)
    with _served() as where, ThreadPoolExecutor(len(QUIET)) as threads:
        began = time.monotonic()
        for answers in threads.map(lambda packets: _exchanged(where, *packets), QUIET):
            assert [each[:4] for each in answers] == [b"200 "]
        assert time.monotonic() - began < 20


def test_a_request_that_takes_longer_than_a_silent_connection_may_last_is_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_server, "KEEP_ALIVE_S", 1)
    monkeypatch.setattr(http_server, "LOOK_S", 0.1)
    with _served() as where:
        answers = _exchanged(
            where, b"GET /x HTTP/1.1\r\nHost: x\r\n\r\n", b"GET /wait HTTP/1.1\r\nHost: x\r\n\r\n"
        )
        assert [each[:4] for each in answers] == [b"200 ", b"200 "]


@pytest.mark.parametrize("parts", [1, 3], ids=["whole", "streamed"])
@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
def test_the_last_answer_on_a_connection_says_so_once(version: bytes, parts: int) -> None:
    request = b"GET /predictions/m HTTP/%b\r\nHost: x\r\nConnection: Close\r\n" % version
    answers = [Answer(200, b"text/plain", (), b"part", part < parts - 1) for part in range(parts)]
    head, rest = _answer(*answers, head=request)
    assert [line for line in head.split(b"\r\n") if line.startswith(b"connection")] == [b"connection: close"]
    if version == b"1.0":  # which has no chunks
        assert b"content-length: %d" % (4 * parts) in head
        assert b"transfer-encoding" not in head
        assert rest == b"part" * parts


def test_a_stream_that_breaks_is_an_error_by_http_1_0() -> None:
    half = Answer(200, b"text/plain", (), b"half", more=True)
    head, rest = _answer(half, Refusal(500, "x", "Worker died."), head=HEAD.replace(b"1.1", b"1.0"))
    assert head.startswith(b"HTTP/1.1 500 ")
    assert b"Worker died." in rest
    assert b"half" not in rest


ANSWERS: dict[str, tuple[Answer | Refusal, ...]] = {
    "whole": (Answer(200, b"text/plain", ((b"x-a", b"1"),), b"said"),),
    "error": (Answer(418, b"text/plain", (), b"no"),),
    "streamed": (Answer(200, b"", (), b"one", more=True), Answer(200, b"", (), b"two")),
    "streamed error": (Answer(500, b"", (), b"one", more=True), Answer(500, b"", (), b"two")),
    "refused": (Refusal(507, "InternalServerException", "no memory"),),
}


@pytest.mark.parametrize("method", [b"POST", b"HEAD", b"OPTIONS"])
@pytest.mark.parametrize("answers", ANSWERS.values(), ids=ANSWERS)
def test_a_request_in_one_part_is_answered_and_logged_as_one_in_many(
    answers: tuple[Answer | Refusal, ...], method: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "ACCESS_LOG")
    head = HEAD.replace(b"POST", method)
    body = b"x" * (1 << 15)
    said = []
    for framed in (b"Content-Length: 1\r\n\r\nx", b"Content-Length: %d\r\n\r\n" % len(body) + body):
        queue = AnsweringQueue(*answers)
        application = Application(models_with(queue), has_access_lines=True)
        with _served(application) as where:
            answer, *_ = _exchanged(where, head + framed + LAST)
        said.append(re.sub(rb"x-request-id: \S+", b"", answer))
        assert len(queue.requests) == (method != b"OPTIONS")
    assert said[0] == said[1]
    lines = [re.sub(r"[0-9]+$|:[0-9]+", "", line) for line in caplog.messages]
    half = len(lines) // 2
    assert lines[:half] == lines[half:]
    assert "/predictions/m" in lines[0]


class _FullQueue(AnsweringQueue):
    def put(self, job: Job) -> bool:
        return False


def test_a_request_for_a_full_queue_is_counted_once() -> None:
    models = models_with(_FullQueue())
    with _served(Application(models)) as where:
        refused, *_ = _exchanged(where, HEAD + b"Content-Length: 1\r\n\r\nx" + LAST)
    assert refused.startswith(b"503 ")
    assert b"has no worker" in refused
    assert models.find("m", None).traffic.describe("m", 0)["answers"] == {"503": 1}


class _SlowQueue(AnsweringQueue):
    """Answers each request after a tenth of a second, with three times its body."""

    def put(self, job: Job) -> bool:
        request = job.take_request()
        self.requests.append(request)
        body = request[2][0].value
        asyncio.get_running_loop().call_later(0.1, job.deliver, Answer(200, b"text/plain", (), body * 3))
        return True


def test_requests_in_one_packet_are_answered_in_their_order() -> None:
    with _served(Application(models_with(_SlowQueue()))) as where:
        asked = [HEAD + b"Content-Length: 1\r\n\r\n%d" % number for number in range(5)]
        answers = _exchanged(where, b"".join(asked) + LAST)
    assert [each.rpartition(b"\r\n\r\n")[2] for each in answers[:5]] == [b"%d" % n * 3 for n in range(5)]
    assert answers[5].startswith(b"404 ")


def test_a_client_that_sends_requests_without_reading_answers_is_refused() -> None:
    """Each request that waits takes memory, and a client may send them faster than they are answered."""
    asked = HEAD + b"Content-Length: 1\r\n\r\nx"
    with _served(Application(models_with(_SlowQueue()))) as where, socket.create_connection(where) as client:
        client.sendall(asked + b"GET / HTTP/1.1\r\n\r\n" * 5000)
        answers = re.findall(rb"HTTP/1.1 (\d+)", _until_closed(client))
    # The last one says so, but gets lost if the system resets the connection: it has more for the server.
    assert answers[0] == b"200"
    assert len(answers) < 5000


def test_a_client_that_reads_its_answers_may_send_any_number_of_requests() -> None:
    asked = HEAD + b"Content-Length: 1\r\n\r\nx"
    queue = AnsweringQueue(Answer(200, b"", (), b"x"))
    with _served(Application(models_with(queue))) as where, socket.create_connection(where) as client:
        client.settimeout(30)
        for _ in range(40):
            client.sendall(asked * 100)
            said = b""
            while said.count(b"HTTP/1.1 200") < 100 or not said.endswith(b"x"):
                said += client.recv(1 << 16)


def test_a_head_of_too_many_headers_is_refused(address: tuple[str, int]) -> None:
    with socket.create_connection(address) as client:
        client.sendall(HEAD + b"a:b\r\n" * 1000)
        assert b"headers are too large" in _until_closed(client)


def test_a_request_that_comes_byte_by_byte_is_answered() -> None:
    application = Application(models_with(_SlowQueue()))
    with _served(application) as where, socket.create_connection(where) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in HEAD + b"Content-Length: 3\r\n\r\nabc" + LAST:
            connection.sendall(bytes([byte]))
        said = _until_closed(connection)
    assert b"\r\n\r\nabcabcabcHTTP/1.1 404 " in said


def test_a_client_that_leaves_before_its_answer_takes_nothing_from_the_others() -> None:
    queue = _SlowQueue()
    with _served(Application(models_with(queue))) as where:
        with socket.create_connection(where) as connection:
            connection.sendall(HEAD + b"Content-Length: 1\r\n\r\nx")
            wait_for(lambda: len(queue.requests) == 1, "the request")
        answers = _exchanged(where, HEAD + b"Content-Length: 1\r\n\r\ny" + LAST)
    assert answers[0].endswith(b"\r\n\r\nyyy")


class _BusyQueue(ModelQueue):
    """The queue of a model whose worker is busy: requests wait in line."""

    def __init__(self) -> None:
        self.waiting: list[Job] = []
        self.settings, self.wanted, self.is_stalled = QueueSettings(), 1, False

    def put(self, job: Job) -> bool:
        self.loop = asyncio.get_running_loop()
        self.waiting.append(job)
        return True

    def forget(self, job: Job) -> None:
        job.end()
        self.waiting.remove(job)


@pytest.mark.parametrize("size", [1, 1 << 15, 1 << 22])
def test_a_request_in_line_is_dropped_when_its_client_leaves(size: int) -> None:
    queue = _BusyQueue()
    models = models_with(queue)
    with _served(Application(models)) as where:
        with socket.create_connection(where) as connection:
            connection.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % size + bytes(size))
            wait_for(lambda: queue.waiting, "the request")
        wait_for(lambda: not queue.waiting, "the request's end")
    assert models.find("m", None).traffic.describe("m", 0)["answers"] == {"499": 1}


def test_a_stream_for_a_client_that_does_not_read_ends_and_others_are_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(job_module, "_MOST_UNREAD_BYTES", 1 << 22)
    part = Answer(200, b"", (), bytes(1 << 20), more=True)
    queue = _BusyQueue()
    with _served(Application(models_with(queue))) as where, socket.create_connection(where) as connection:
        connection.sendall(HEAD + b"Content-Length: 1\r\n\r\nx")
        wait_for(lambda: queue.waiting, "the request")
        (job,) = queue.waiting
        for _ in range(100):
            queue.loop.call_soon_threadsafe(job.deliver, part)
        wait_for(lambda: job.is_answered, "the stream's end")
        assert _exchanged(where, LAST)[0].startswith(b"404 ")
        assert len(_until_closed(connection)) < LARGE


class _FailingQueue(_SlowQueue):
    """Takes one request; those after it fail."""

    def put(self, job: Job) -> bool:
        if self.requests:
            raise MemoryError("for a request")
        return super().put(job)


@pytest.mark.parametrize("size", [1, 1 << 15])
def test_a_request_that_fails_is_answered_and_its_connection_ends(
    size: int, few: int, caplog: pytest.LogCaptureFixture
) -> None:
    asked = HEAD + b"Content-Length: %d\r\n\r\n" % size + bytes(size)
    with _served(Application(models_with(_FailingQueue()))) as where:
        answers = _exchanged(where, asked + asked + SMUGGLED)
        assert [each[:4] for each in answers] == [b"200 ", b"500 "]
        assert "MemoryError: for a request" in caplog.text
        for _ in range(few):
            assert [each[:4] for each in _exchanged(where, asked)] == [b"500 "]


@pytest.mark.parametrize("size", [1, 1 << 15])
def test_a_client_that_leaves_with_requests_in_line_is_no_error(
    size: int, caplog: pytest.LogCaptureFixture
) -> None:
    queue = _SlowQueue()
    with _served(Application(models_with(queue))) as where:
        with socket.create_connection(where) as connection:
            request = HEAD + b"Content-Length: %d\r\n\r\n" % size + b"x" * size
            connection.sendall(request * 3)
            wait_for(lambda: len(queue.requests) == 1, "the first request")
        answers = _exchanged(where, HEAD + b"Content-Length: 1\r\n\r\ny" + LAST)
    assert answers[0].endswith(b"\r\n\r\nyyy")
    assert caplog.text == ""


@pytest.mark.parametrize(
    "wrong",
    [
        b"no request\r\n\r\n",
        HEAD + b"Content-Length: x\r\n\r\n" + SMUGGLED,
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\nz\r\nno size\r\n" + SMUGGLED,
        HEAD + b"x: " + b"y" * 400_000 + b"\r\n\r\n" + SMUGGLED,
        *(b"GET %b HTTP/1.1\r\nHost: x\r\n\r\n" % target + SMUGGLED for target in BAD_TARGETS.values()),
    ],
    ids=["no head", "no length", "no chunk", "large head", *BAD_TARGETS],
)
@pytest.mark.parametrize("apart", [False, True], ids=["one packet", "another packet"])
def test_bytes_that_are_no_request_are_refused_after_the_requests_before_them(
    wrong: bytes, apart: bool
) -> None:
    """Else a client would take the refusal for the answer to its first request."""
    asked = b"".join(HEAD + b"Content-Length: 1\r\n\r\n%d" % number for number in range(2))
    with _served(Application(models_with(_SlowQueue()))) as where:
        answers = _exchanged(where, asked, wrong) if apart else _exchanged(where, asked + wrong)
    assert [each[:4] for each in answers] == [b"200 ", b"200 ", b"400 "]
    assert [each.rpartition(b"\r\n\r\n")[2] for each in answers[:2]] == [b"000", b"111"]


def test_a_body_that_breaks_after_its_answer_has_begun_gets_no_second_one(address: tuple[str, int]) -> None:
    with socket.create_connection(address) as connection:
        connection.sendall(b"POST /early HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nz\r\n")
        connection.settimeout(30)
        said = connection.recv(1 << 16)
        connection.sendall(b"no size\r\n")
        said += _until_closed(connection)
    assert re.findall(rb"HTTP/1.1 \d+", said) == [b"HTTP/1.1 200"]


def test_the_rest_of_a_body_after_its_answer_is_no_request(address: tuple[str, int]) -> None:
    head = b"POST /early HTTP/1.1\r\nHost: x\r\nContent-Length: 200000\r\n\r\n"
    answers = _exchanged(address, head, b"x" * 200_000, LAST)
    assert [each[:4] for each in answers] == [b"200 ", b"200 "]


class _Elsewhere:
    """Stands for TorchServe, which answers all that is passed on."""

    async def pass_on(self, _scope: Scope, _receive: Receive, send: Send, *, ends: bool) -> None:
        await send_answer(send, Answer(200, b"", (), b""), [])


def test_a_body_whose_declared_length_is_too_large_is_not_passed_on() -> None:
    application = Application(Models(), Limits(100), elsewhere=cast(Any, _Elsewhere()))
    with _served(application) as where:
        answers = _exchanged(where, HEAD + b"Content-Length: 100000\r\n\r\n")
    assert [each[:4] for each in answers] == [b"413 "]
