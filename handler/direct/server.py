"""The HTTP server below the application: uvicorn, with httptools and uvloop."""

from __future__ import annotations

import asyncio
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from interpool.handler.direct.application import Application

HEAD_S = 20.0  # seconds within which a request's line and headers must have come
KEEP_ALIVE_S = 75
MOST_CONNECTIONS = 10_000


class _Protocol(HttpToolsProtocol):
    """uvicorn's own, which would wait for ever for a first request, and for the rest of its headers."""

    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._head_timer = self.loop.call_later(HEAD_S, self._head_is_late)

    def on_headers_complete(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
        super().connection_lost(exc)

    def _head_is_late(self) -> None:
        self.transport.close()


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
