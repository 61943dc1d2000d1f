"""TorchServe's worker protocol, from its frontend's side: requests are written, and replies are read.

The other side is ``ts.protocol.otf_message_handler``, and ``native/cpp`` in its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

_END = b"\xff\xff\xff\xff"  # of a list
PREDICT, BATCH_END = b"I", _END
SUCCESS = 200
STREAM_NEXT = b"ts_stream_next"
_SMALL = 1 << 16  # bytes that are rather copied than written by themselves


class Parameter(NamedTuple):
    """A part of a request: a form's field, or its whole body."""

    name: bytes
    content_type: bytes
    value: bytes


class Prediction(NamedTuple):
    """The answer to one request of a batch."""

    request_id: bytes
    content_type: bytes
    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes


class Reply(NamedTuple):
    """What a worker says to a message: if ``code`` is not 200, ``message`` is the answer to all requests."""

    code: int
    message: bytes
    predictions: list[Prediction]


def field(data: bytes) -> bytes:
    """Bytes after their length."""
    return len(data).to_bytes(4, "big") + data


def request_parts(
    request_id: bytes, headers: Mapping[bytes, bytes], parameters: Iterable[Parameter]
) -> list[bytes]:
    """One request as it stands in a batch, in pieces; large values are not copied."""
    whole: list[bytes] = []
    pieces = [field(request_id)]
    for name, value in headers.items():
        pieces += (len(name).to_bytes(4, "big"), name, len(value).to_bytes(4, "big"), value)
    pieces.append(_END)
    for name, content_type, value in parameters:
        pieces += (field(name), field(content_type), len(value).to_bytes(4, "big"))
        if len(value) > _SMALL:
            whole += (b"".join(pieces), value)
            pieces = []
        else:
            pieces.append(value)
    pieces.append(_END)
    whole.append(b"".join(pieces))
    return whole


class ReplyReader:
    """Takes replies out of what a worker's connection receives."""

    def __init__(self) -> None:
        self._chunks: list[bytes] = []
        self._size = 0
        self._needed = 0  # bytes without which the next reply is not whole

    def feed(self, data: bytes) -> Iterable[Reply]:
        """Take what was received; gives each reply that is whole by now."""
        self._chunks.append(data)
        self._size += len(data)
        while self._size and self._size >= self._needed:
            if len(self._chunks) > 1:
                self._chunks = [b"".join(self._chunks)]
            buffer = self._chunks[0]
            cursor = _Cursor(buffer)
            try:
                reply = cursor.reply()
            except _TooShort as short:
                self._needed = short.needed
                return
            rest = buffer[cursor.at :]
            self._chunks, self._size, self._needed = [rest] if rest else [], len(rest), 0
            yield reply


class _TooShort(Exception):
    def __init__(self, needed: int) -> None:
        super().__init__()
        self.needed = needed


class _Cursor:
    """Reads a reply; raises _TooShort if it is not whole."""

    def __init__(self, buffer: bytes) -> None:
        self._buffer = buffer
        self.at = 0

    def reply(self) -> Reply:
        code, message = self._integer(), self._field()
        predictions = []
        while (length := self._integer()) >= 0:
            request_id = self._take(length)
            content_type, status = self._field(), self._integer()
            self._field()  # the status's phrase, which ASGI has no place for
            headers = [(self._field(), self._field()) for _ in range(self._integer())]
            predictions.append(Prediction(request_id, content_type, status, headers, self._field()))
        return Reply(code, message, predictions)

    def _integer(self) -> int:
        return int.from_bytes(self._take(4), "big", signed=True)

    def _field(self) -> bytes:
        return self._take(int.from_bytes(self._take(4), "big"))

    def _take(self, length: int) -> bytes:
        end = self.at + length
        if end > len(self._buffer):
            raise _TooShort(end)
        part = self._buffer[self.at : end]
        self.at = end
        return part
