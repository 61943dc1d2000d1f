"""What a client may cost that sends no whole request, or reads no answer: bounded time and memory."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from interpool.handler.direct import server as http_server
from interpool.handler.direct.application import Application
from interpool.handler.direct.models import Models
from interpool.handler.direct.replies import Receive, Scope, Send

HEAD = b"POST /predictions/m HTTP/1.1\r\nHost: x\r\n"
LARGE = 32 << 20


class _Echo(Application):
    """Answers with the request's headers, or with much."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/wait":
            await asyncio.sleep(2.5)
        elif scope["path"] != "/large":
            while (await receive()).get("more_body"):
                pass
        names = b",".join(name for name, _ in scope["headers"])
        body = b"x" * LARGE if scope["path"] == "/large" else names
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": body})


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, int]]:
    monkeypatch.setattr(http_server, "REQUEST_S", 1.0)
    monkeypatch.setattr(http_server, "LOOK_S", 0.1)
    listener = socket.create_server(("127.0.0.1", 0))
    served = http_server.server(_Echo(Models()), lifespan="off")
    thread = threading.Thread(target=served.run, args=([listener],))
    thread.start()
    try:
        yield listener.getsockname()
    finally:
        served.should_exit = True
        thread.join(30)
        listener.close()
        assert not thread.is_alive()


def _until_closed(connection: socket.socket) -> bytes:
    """What the server still says before it closes a connection."""
    connection.settimeout(30)
    said = b""
    with contextlib.suppress(ConnectionError):
        while part := connection.recv(1 << 16):
            said += part
    return said


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"POST /predictions/m HT",
        HEAD + b"Content-Length: 100\r\n\r\nhalf",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nha",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\nTrailer",
        HEAD + b"Content-Length: 0\r\n\r\n" + HEAD,
    ],
)
def test_a_client_that_stops_within_a_request_is_cut_off(address: tuple[str, int], data: bytes) -> None:
    with socket.create_connection(address) as connection:
        connection.sendall(data)
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
