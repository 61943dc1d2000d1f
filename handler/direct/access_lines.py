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

    Attributes:
        status: the answer's status; 0 as long as there is none.
    """

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._began = time.monotonic()
        self.status = 0

    def sender(self, send: Send) -> Send:
        """A ``send`` of ASGI messages that notes the answer's status."""

        async def noting(message: MutableMapping[str, Any]) -> None:
            await send(message)
            if message["type"] == "http.response.start":
                self.status = message["status"]

        return noting

    def write(self) -> None:
        """Log the line, after the answer; there is none if the client left before that."""
        if self.status:
            logger.info("%s", self._text())

    def _text(self) -> str:
        scope = self._scope
        host, port = scope.get("client") or ("", 0)
        query = scope["query_string"].decode("latin-1")
        path = (scope.get("raw_path") or scope["path"].encode()).decode("latin-1") + (query and f"?{query}")
        milliseconds = int((time.monotonic() - self._began) * 1000)
        asked = f"{scope['method']} {_printable(path)} HTTP/{scope['http_version']}"
        return f'/{host}:{port} "{asked}" {self.status} {milliseconds}'


def _printable(text: str) -> str:
    """A client's text with control characters escaped, so that it cannot begin another line."""
    return "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in text)
