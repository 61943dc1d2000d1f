"""Logs a line for each request, as TorchServe's access log has it."""

from __future__ import annotations

import logging
import time
from collections.abc import MutableMapping
from typing import Any

from interpool.handler.direct.replies import Scope, Send

logger = logging.getLogger("ACCESS_LOG")


class AccessLine:
    """Writes the line of one request.

    Args:
        scope: the request's ASGI scope.
        send: sends the answer's ASGI messages.
    """

    def __init__(self, scope: Scope, send: Send) -> None:
        self._scope = scope
        self._send = send
        self._began = time.monotonic()
        self._status = 0

    async def send(self, message: MutableMapping[str, Any]) -> None:
        """Send a message, in place of the original ``send``, and note the answer's status."""
        await self._send(message)
        if message["type"] == "http.response.start":
            self._status = message["status"]

    def write(self) -> None:
        """Log the line, after the answer; there is none if the client left before that."""
        if self._status:
            logger.info("%s", self._text())

    def _text(self) -> str:
        scope = self._scope
        host, port = scope.get("client") or ("", 0)
        query = scope["query_string"].decode("latin-1")
        path = (scope.get("raw_path") or scope["path"].encode()).decode("latin-1") + (query and f"?{query}")
        milliseconds = int((time.monotonic() - self._began) * 1000)
        asked = f"{scope['method']} {_printable(path)} HTTP/{scope['http_version']}"
        return f'/{host}:{port} "{asked}" {self._status} {milliseconds}'


def _printable(text: str) -> str:
    """A client's text with control characters escaped, so that it cannot begin another line."""
    return "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in text)
