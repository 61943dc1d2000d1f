"""The HTTP server below the application: uvicorn, with httptools and uvloop."""

from __future__ import annotations

import asyncio
from itertools import chain
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from interpool.handler.direct.application import Application

REQUEST_S = 60.0  # seconds within which a request must have come, with its body
LOOK_S = 10.0
MOST_HEAD_BYTES = 1 << 16
KEEP_ALIVE_S = 75


class _Protocol(HttpToolsProtocol):
    """uvicorn's own, which would wait for ever for a first request and for the rest of any, of any size."""

    _begun: float | None = 0.0  # since when a request has been coming, by the loop's clock
    _head: int | None = 0  # bytes that have come of a request's head; None: it is whole
    _look: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._begun = self.loop.time()
        self._look = self.loop.call_later(LOOK_S, self._end_if_slow)

    def data_received(self, data: bytes) -> None:
        if self._head is not None:
            self._head += len(data)
        super().data_received(data)
        if self._head is not None and self._head > MOST_HEAD_BYTES and not self.transport.is_closing():
            self.send_400_response("The request's headers are too large.")

    def on_message_begin(self) -> None:
        self._begun = self.loop.time()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        before, self._head = self._head or 0, None
        if before > MOST_HEAD_BYTES and sum(map(len, chain(*self.headers))) > MOST_HEAD_BYTES:
            self._head = before
            return  # no request begins
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._begun = None
        if self._head is None:
            self._head = 0
            super().on_message_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._look is not None:
            self._look.cancel()
        super().connection_lost(exc)

    def _end_if_slow(self) -> None:
        if self._begun is not None and self.loop.time() - self._begun > REQUEST_S:
            self.transport.close()
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
