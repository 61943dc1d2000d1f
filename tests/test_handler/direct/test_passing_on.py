"""What TorchServe gets of a request that is passed on to it."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from interpool.handler.direct.application import Application
from interpool.handler.direct.models import Models
from interpool.handler.direct.passing_on import TorchServeClient


@contextlib.asynccontextmanager
async def _torchserve(
    answer: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> AsyncIterator[TorchServeClient]:
    """A client of a server that answers so."""
    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        client = TorchServeClient(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        yield client
        await client.close()


async def _nothing_more() -> Any:
    await asyncio.Event().wait()  # the client stays


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
        return next(messages, None) or await _nothing_more()

    async def send(_: Any) -> None:
        pass

    scope = {"path": "/x", "query_string": b"", "method": "POST"}
    scope["headers"] = [*headers, (b"content-length", b"%d" % len(body))]
    async with _torchserve(answer) as client:
        await client.pass_on(scope, receive, send)
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


def test_headers_that_the_connection_names_are_not_passed_on() -> None:
    headers = [(b"connection", b"close, X-Hop"), (b"x-hop", b"1"), (b"x-name", b"x")]
    received = asyncio.run(_passed_on(headers, b"body"))
    assert b"x-name: x\r\n" in received
    assert b"x-hop" not in received


@pytest.mark.parametrize(
    ("method", "head"),
    [
        ("HEAD", b"200 OK\r\nContent-Length: 5\r\n\r\n"),
        ("POST", b"204 No Content\r\n\r\n"),
        ("GET", b"304 Not Modified\r\n\r\n"),
        ("POST", b"200 OK\r\nContent-Length: 0\r\n\r\n"),
    ],
)
def test_answers_without_a_body_end(method: str, head: bytes) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError):
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(b"HTTP/1.1 " + head)
        writer.close()

    async def work() -> None:
        async with _torchserve(answer) as client:
            for _ in range(3):
                messages: list[Any] = []

                async def send(message: Any, messages: list[Any] = messages) -> None:
                    messages.append(message)
                    assert len(messages) < 10

                scope = {"path": "/x", "query_string": b"", "method": method, "headers": []}
                await client.pass_on(scope, _nothing_more, send)
                assert messages[0]["status"] == int(head[:3])
                assert not messages[-1].get("more_body")

    asyncio.run(work())


@pytest.mark.parametrize("asked", [b"close", b"keep-alive"])
@pytest.mark.parametrize("draining", [False, True])
def test_an_answer_says_whether_the_connection_ends_as_one_of_the_pools_does(
    asked: bytes, draining: bool
) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    async def work() -> list[bytes]:
        messages: list[Any] = []

        async def send(message: Any) -> None:
            messages.append(message)

        models = Models()
        models.is_draining = draining
        scope = {"type": "http", "path": "/x/y", "query_string": b"", "method": "GET"}
        scope["headers"] = [(b"connection", asked)]
        async with _torchserve(answer) as client:
            await Application(models, elsewhere=client)(scope, _nothing_more, send)
        return [value for name, value in messages[0]["headers"] if name == b"connection"]

    assert asyncio.run(work()) == [b"close" if draining else asked]


def _openssl(*arguments: str | Path) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)


def _signed_by_an_authority(folder: Path) -> tuple[Path, Path]:
    """A server's certificate and its key; no file that is returned has the authority's certificate."""
    authority, certificate, key = folder / "authority.pem", folder / "certificate.pem", folder / "key.pem"
    new = ("req", "-nodes", "-newkey", "rsa:2048")
    _openssl(*new, "-x509", "-subj", "/CN=authority", "-keyout", folder / "authority.key", "-out", authority)
    _openssl(*new, "-subj", "/CN=example.org", "-keyout", key, "-out", folder / "asked.csr")
    signing = ("-CA", authority, "-CAkey", folder / "authority.key", "-CAcreateserial")
    _openssl("x509", "-req", "-in", folder / "asked.csr", *signing, "-out", certificate)
    return certificate, key


def test_a_certificate_that_an_authority_has_signed_is_trusted(tmp_path: Path) -> None:
    certificate, key = _signed_by_an_authority(tmp_path)
    own = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    own.load_cert_chain(certificate, key)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        writer.close()

    async def work() -> int:
        statuses: list[int] = []

        async def send(message: Any) -> None:
            statuses.append(message.get("status", 0))

        async with await asyncio.start_server(answer, "127.0.0.1", 0, ssl=own) as server:
            port = server.sockets[0].getsockname()[1]
            client = TorchServeClient(f"https://127.0.0.1:{port}", str(certificate))
            scope = {"path": "/x", "query_string": b"", "method": "GET", "headers": []}
            await client.pass_on(scope, _nothing_more, send)
            await client.close()
        return statuses[0]

    assert asyncio.run(work()) == 200
