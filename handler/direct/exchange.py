"""One request and its answer on a connection: uvicorn's cycle, with fewer steps for what most requests need.

A body's parts are joined once, and a whole answer takes one system call. For the event loop's thread alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from interpool.handler.direct.replies import WITHOUT_LENGTH

_MOST_COPIED_BYTES = 1 << 16  # of a body; a larger one is handed to the kernel beside its head
_OWN = frozenset((b"content-length", b"connection"))  # headers that are written here, and not copied
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


def _done() -> None:
    """Nothing is left to do."""


class Exchange(RequestResponseCycle):
    """Takes a request's body from its connection, and writes the answer to it.

    Args:
        scope: the request's ASGI scope.
        protocol: of the connection.
        keep_alive: whether the client may ask again on the connection.
        expects_continue: whether the client waits for a word before it sends the body.
        is_short: whether the application gets the request when it is whole.

    Attributes:
        held_bytes: of the body, that the application has not taken.
        on_left: called if the client leaves before the answer is begun.
    """

    scope: Any

    # uvicorn's constructor is not called, as it costs as much as the rest of an exchange.
    def __init__(
        self, scope: Any, protocol: Any, keep_alive: bool, expects_continue: bool, is_short: bool
    ) -> None:
        self.access_log = self.disconnected = self.response_started = self.response_complete = False
        self.is_short = is_short
        self.chunked_encoding = None
        self.expected_content_length = self.held_bytes = 0
        self.more_body = True
        self.default_headers = []
        self.scope = scope
        self.transport = protocol.transport
        self.flow = protocol.flow
        self.logger = protocol.logger
        self.on_response = protocol.on_response_complete
        self._run = protocol.run
        self.on_left: Callable[[], None] = _done
        self.keep_alive = keep_alive
        self.waiting_for_100_continue = expects_continue
        self.message_event = asyncio.Event()
        self._parts: list[bytes] = []  # of the body, that the application has not taken
        self._start: Any = None  # the message that begins the answer, until the next one comes

    def add(self, part: bytes) -> None:
        """Take a part of the body."""
        self._parts.append(part)
        self.held_bytes += len(part)
        self.message_event.set()

    def take_body(self) -> bytes:
        """What has come of the body since it was last taken."""
        parts, self._parts = self._parts, []
        self.held_bytes = 0
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def peek_body(self) -> bytes:
        """What has come of the body since it was last taken; it is not taken."""
        if len(self._parts) != 1:
            self._parts = [b"".join(self._parts)]
        return self._parts[0]

    def run(self, application: Any) -> None:
        """Have an ASGI application answer the request, in a task."""
        self.on_left = _done
        self._run(self, application)

    async def receive(self) -> Any:
        """The next part of the body, by ASGI."""
        if self.waiting_for_100_continue and not self.transport.is_closing():
            self.transport.write(_CONTINUE)
            self.waiting_for_100_continue = False
        if not self.disconnected and not self.response_complete:
            if self.more_body:  # else what comes is the next request
                self.flow.resume_reading()
            await self.message_event.wait()
            self.message_event.clear()
        if self.disconnected or self.response_complete:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": self.take_body(), "more_body": self.more_body}

    async def send(self, message: Any) -> None:
        """Write a part of the answer, by ASGI. The head waits for the first part of the body."""
        if message["type"] == "http.response.start" and not self.response_started:
            self._start = message
            return
        start, self._start = self._start, None
        if start is not None:
            if not message.get("more_body") and self.takes_whole:
                self.write_whole(start["status"], start["headers"], message.get("body", b""))
                return
            await super().send(start)
        await super().send(message)

    @property
    def takes_whole(self) -> bool:
        """Whether ``write_whole`` may write the answer."""
        return not self.flow.write_paused and self.scope["method"] != "HEAD"

    def write_whole(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
        """Write an answer at once.

        Args:
            status: its HTTP status.
            headers: its headers. Their names are in lower case, and no value has a line's end.
            body: the whole body.
        """
        if self.disconnected:
            return
        self.response_started = self.response_complete = True
        self.waiting_for_100_continue = False
        head = [STATUS_LINE[status]]
        for name, value in headers:
            if name not in _OWN:
                head += (name, b": ", value, b"\r\n")
            elif value == b"close":
                self.keep_alive = False
        if status not in WITHOUT_LENGTH:
            head.append(b"content-length: %d\r\n" % len(body))
        head.append(b"connection: keep-alive\r\n\r\n" if self.keep_alive else b"connection: close\r\n\r\n")
        if len(body) <= _MOST_COPIED_BYTES:
            head.append(body)
            self.transport.write(b"".join(head))
        else:
            self.transport.writelines((b"".join(head), body))
        self.message_event.set()
        if not self.keep_alive:
            self.transport.close()
        self.on_response()
        # An idle connection and its last exchange make no cycle.
        self.on_response = self._run = self.on_left = _done
