"""The HTTP server below the application: uvicorn, with httptools and uvloop."""

from __future__ import annotations

import asyncio
from itertools import chain
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from interpool.handler.direct.application import Application

REQUEST_S = 60.0  # seconds within which a request must have come whole; or that a client may read nothing
LOOK_S = 10.0
MOST_HEAD_BYTES = 1 << 16  # of a head, or of trailers
KEEP_ALIVE_S = 75


class _Protocol(HttpToolsProtocol):
    """Bounds the time and memory that a client takes. uvicorn's own protocol sets no such limits."""

    _begun: float | None = 0.0  # when a request began to come, by the loop's clock; None: none is coming
    _in_head = True
    _framing = 0  # bytes that have come since a head or a request ended, or a body's bytes came
    _unread = 0  # bytes that the client has not read yet
    _read = 0.0  # when that number last changed
    _look: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._begun = self.loop.time()
        self._look = self.loop.call_later(LOOK_S, self._end_if_slow)

    def data_received(self, data: bytes) -> None:
        self._framing += len(data)
        super().data_received(data)
        if self._framing > MOST_HEAD_BYTES and not self.transport.is_closing():
            self.send_400_response("The request's headers are too large.")

    def on_message_begin(self) -> None:
        self._begun = self.loop.time()
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:  # a proxy that checks headers does not check trailers
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if self._framing > MOST_HEAD_BYTES and sum(map(len, chain(*self.headers))) > MOST_HEAD_BYTES:
            return  # no request begins
        self._in_head, self._framing = False, 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        if not self._in_head:
            self._framing = 0
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._begun = None
        if not self._in_head:
            self._in_head, self._framing = True, 0
            super().on_message_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._look is not None:
            self._look.cancel()
        super().connection_lost(exc)

    def _end_if_slow(self) -> None:
        now, unread = self.loop.time(), self.transport.get_write_buffer_size()
        if unread != self._unread or not unread:
            self._unread, self._read = unread, now
        if self._begun is not None and self.flow.read_paused:
            self._begun = now  # the rest waits here, and not for the client
        if now - self._read > REQUEST_S or (self._begun is not None and now - self._begun > REQUEST_S):
            self.transport.abort()  # to close it would wait until the client has read all
        else:
            self._look = self.loop.call_later(LOOK_S, self._end_if_slow)


def server(application: Application, **settings: Any) -> uvicorn.Server:
    """A server of the application.

    Args:
        application: what answers.
        settings: uvicorn's, such as host, port, uds, fd and those of TLS.
    """
    config = uvicorn.Config(
        application,
        http=_Protocol,
        loop="uvloop",
        ws="none",
        access_log=False,
        log_config=None,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=10,
        backlog=4096,
        **settings,
    )
    return uvicorn.Server(config)
