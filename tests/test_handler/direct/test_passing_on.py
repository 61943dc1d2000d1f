"""What TorchServe gets of a request that is passed on to it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from interpool.handler.direct.passing_on import TorchServeClient


async def _passed_on(headers: list[tuple[bytes, bytes]], body: bytes) -> bytes:
    """What a server gets for a request with these headers."""
    received = b""
    messages = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal received
        received = await reader.readuntil(b"\r\n\r\n") + await reader.readexactly(len(body))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        writer.close()

    async def receive() -> Any:
        return next(messages, None) or await asyncio.Event().wait()  # the client stays

    async def send(_: Any) -> None:
        pass

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    client = TorchServeClient(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    scope = {"path": "/x", "query_string": b"", "method": "POST"}
    scope["headers"] = [*headers, (b"content-length", b"%d" % len(body))]
    async with server:
        await client.pass_on(scope, receive, send)
        await client.close()
    return received


@pytest.mark.parametrize("value", [b"plain", "größe".encode(), "日本".encode()])
def test_a_header_in_utf_8_comes_as_it_was_sent(value: bytes) -> None:
    assert b"x-name: %b\r\n" % value in asyncio.run(_passed_on([(b"x-name", value)], b"body"))


def test_the_wish_for_another_protocol_is_not_passed_on() -> None:
    headers = [(b"connection", b"Upgrade, HTTP2-Settings"), (b"http2-settings", b"AAMA"), (b"x-name", b"x")]
    received = asyncio.run(_passed_on(headers, b"body"))
    assert received.endswith(b"\r\n\r\nbody")
    assert b"x-name: x\r\n" in received
    assert b"connection" not in received.lower()
    assert b"http2-settings" not in received
