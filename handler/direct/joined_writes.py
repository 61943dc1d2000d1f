"""Joins what is written to a connection in one step of the event loop: the head and body of an answer.

uvicorn writes them one after the other, and uvloop hands each to the kernel at once. Together they take one
system call, and wake the client once. For the event loop's thread alone.
"""

from __future__ import annotations

import asyncio
from typing import Any


class JoinedWrites:
    """A connection's transport, as uvicorn's protocol uses it.

    Args:
        transport: the event loop's transport of the connection.
    """

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._first: bytes | None = None  # written in this step, and not sent yet
        # uvicorn calls these for each request.
        self.is_closing = transport.is_closing
        self.pause_reading = transport.pause_reading
        self.resume_reading = transport.resume_reading

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Send the data at the end of this step, or at once, together with what was written before in it."""
        if self._first is None:
            self._first = data
            self._loop.call_soon(self._flush)
        else:
            first, self._first = self._first, None
            self._transport.writelines((first, data))

    def get_write_buffer_size(self) -> int:
        """The number of bytes that the client has not taken yet."""
        size: int = self._transport.get_write_buffer_size()
        return size + len(self._first or b"")

    def close(self) -> None:
        """End the connection once all that was written is sent."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        first, self._first = self._first, None
        if first is not None and not self.is_closing():  # the client may have left meanwhile
            self._transport.write(first)
