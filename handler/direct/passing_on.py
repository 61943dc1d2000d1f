"""Passes requests for models and paths that the pool does not have on to TorchServe, and its answers back."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Iterable

import aiohttp
from yarl import URL

from interpool.handler.direct.job import Refusal
from interpool.handler.direct.replies import Receive, Scope, Send, error_answer, head_of, send_answer

# Headers that belong to one connection, and are not passed on.
_OF_A_CONNECTION = frozenset(
    (
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        b"expect",
        b"http2-settings",
    )
)


def _of_the_message(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Headers without those that belong to the connection, and those that it names (RFC 9110, 7.6.1)."""
    lower = [(name.lower(), value) for name, value in headers]
    named = {
        each.strip() for name, value in lower if name == b"connection" for each in value.lower().split(b",")
    }
    return [(name, value) for name, value in lower if name not in _OF_A_CONNECTION | named]


class TorchServeClient:
    """A client of TorchServe's inference address. For the event loop's thread.

    Args:
        inference: the address, with http:// or https://.
        certificate: the file of TorchServe's own certificate, if it uses TLS; "" for none.

    Raises:
        OSError: the certificate cannot be read or used.
    """

    def __init__(self, inference: str, certificate: str = "") -> None:
        self._inference = inference.rstrip("/")
        self._tls = _trusting(certificate)
        self._session: aiohttp.ClientSession | None = None

    def session(self) -> aiohttp.ClientSession:
        """The session for requests to TorchServe; ``close`` closes it."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, ssl=self._tls),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=10),
                auto_decompress=False,
                skip_auto_headers=("user-agent", "accept", "accept-encoding", "content-type"),
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session

    async def close(self) -> None:
        """Close its connections."""
        if self._session is not None:
            await self._session.close()

    async def pass_on(self, scope: Scope, receive: Receive, send: Send, *, ends: bool = False) -> None:
        """Have TorchServe answer a request. If it does not, the answer is 503.

        Args:
            scope: the request's ASGI scope.
            receive: returns its body's ASGI messages.
            send: sends the answer's ASGI messages.
            ends: whether the client's connection ends with the answer, also if TorchServe's does not.
        """
        path = (scope.get("raw_path") or scope["path"].encode()).decode("latin-1")
        query = scope["query_string"].decode("latin-1")
        url = URL(self._inference + path + (f"?{query}" if query else ""), encoded=True)
        given = dict(scope["headers"])
        has_body = b"content-length" in given or b"transfer-encoding" in given
        headers = [
            (name.decode("latin-1"), _text(value)) for name, value in _of_the_message(scope["headers"])
        ]
        sent = asyncio.Event()
        data = _body(receive, sent) if has_body and given.get(b"content-length") != b"0" else None
        if data is None:
            sent.set()
        relay = asyncio.ensure_future(self._relay(scope["method"], url, headers, data, send, ends))
        leaving = asyncio.ensure_future(_client_leaves(receive, sent))
        await asyncio.wait((relay, leaving), return_when=asyncio.FIRST_COMPLETED)
        leaving.cancel()
        if not relay.done():
            relay.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await relay

    async def _relay(
        self,
        method: str,
        url: URL,
        headers: list[tuple[str, str]],
        data: AsyncIterator[bytes] | None,
        send: Send,
        ends: bool,
    ) -> None:
        has_begun = False
        try:
            async with self.session().request(
                method, url, headers=headers, data=data, allow_redirects=False
            ) as answer:
                kept = _of_the_message(answer.raw_headers)
                ends |= answer.headers.get("connection", "").lower() == "close"
                kept.append((b"connection", b"close" if ends else b"keep-alive"))
                has_begun = True
                await send({"type": "http.response.start", "status": answer.status, "headers": kept})
                async for chunk in answer.content.iter_any():
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
                await send({"type": "http.response.body", "body": b""})
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            if has_begun:
                raise  # the rest of the answer is lost: the server ends the connection
            said = error_answer(
                Refusal(
                    503, "ServiceUnavailableException", f"TorchServe does not answer: {type(error).__name__}"
                )
            )
            await send_answer(send, said, head_of(said, b"", []))


async def _body(receive: Receive, sent: asyncio.Event) -> AsyncIterator[bytes]:
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ConnectionError("the client has left")
        yield message.get("body", b"")
        if not message.get("more_body"):
            sent.set()
            return


async def _client_leaves(receive: Receive, sent: asyncio.Event) -> None:
    await sent.wait()
    while (await receive())["type"] != "http.disconnect":
        pass


def _text(value: bytes) -> str:
    """A header's value as text, which the HTTP client sends in UTF-8."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def _trusting(certificate: str) -> ssl.SSLContext | bool:
    """A TLS context that trusts a server with this certificate, by any name."""
    if not certificate:
        return True
    context = ssl.create_default_context(cafile=certificate)
    context.check_hostname = False
    # The file has no certificate of the authority that has signed it.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context
