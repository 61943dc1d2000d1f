"""One HTTP connection that is kept, read as it came: also answers without a request.

http.client and urllib throw away what a server sends beyond an answer, or take it for the next one.
"""

from __future__ import annotations

import select
import socket
from typing import Self
from urllib.parse import urlsplit

from local_server import JSON, Answer


class KeptConnection:
    """Asks one request after another, and finds what came without a request.

    Raises OSError if the server is gone or silent.
    """

    def __init__(self, server: str, timeout: float = 60) -> None:
        where = urlsplit(server)
        assert where.hostname
        assert where.port
        self._host = where.netloc
        self._socket = socket.create_connection((where.hostname, where.port), timeout)
        self._read = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def post(self, path: str, body: bytes, content_type: str = JSON) -> Answer:
        """Ask, and take the next answer for this one's, as HTTP has it."""
        head = f"POST {path} HTTP/1.1\r\nHost: {self._host}\r\nContent-Type: {content_type}\r\n"
        self._socket.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        return self._answer()

    def unasked(self, wait: float = 0) -> Answer | None:
        """An answer without a request, if one has come, or does while this waits.

        Raises ConnectionError if the server has ended the connection, as it does after an error.
        """
        if not self._read:
            if not select.select([self._socket], [], [], wait)[0]:
                return None
            self._fill()
        return self._answer()

    def _fill(self) -> None:
        received = self._socket.recv(1 << 16)
        if not received:
            raise ConnectionResetError("the server has closed the connection")
        self._read += received

    def _answer(self) -> Answer:
        while b"\r\n\r\n" not in self._read:
            self._fill()
        head, _, self._read = self._read.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        if headers.get("transfer-encoding") == "chunked":
            return Answer(int(first.split()[1]), self._chunks(), headers)
        return Answer(int(first.split()[1]), self._take(int(headers["content-length"])), headers)

    def _chunks(self) -> bytes:
        """A body whose parts say their lengths, without trailers."""
        parts = []
        while True:
            while b"\r\n" not in self._read:
                self._fill()
            line, _, self._read = self._read.partition(b"\r\n")
            part = self._take(int(line.partition(b";")[0], 16) + 2)[:-2]
            if not part:
                return b"".join(parts)
            parts.append(part)

    def _take(self, length: int) -> bytes:
        while len(self._read) < length:
            self._fill()
        taken, self._read = self._read[:length], self._read[length:]
        return taken
