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

    def feed(self, data: bytes) -> list[Reply]:
        """Take what was received; gives the replies that are whole by now."""
        self._chunks.append(data)
        self._size += len(data)
        if self._size < self._needed:
            return []
        buffer = data if len(self._chunks) == 1 else b"".join(self._chunks)
        replies, at = [], 0
        self._needed = 0
        while at < len(buffer):
            try:
                reply, at = _read(buffer, at)
            except _TooShort as short:
                self._needed = short.needed - at
                break
            replies.append(reply)
        rest = buffer[at:]
        self._chunks, self._size = [rest] if rest else [], len(rest)
        return replies


class _TooShort(Exception):
    """A reply is not whole: at least so many bytes are needed."""

    def __init__(self, needed: int) -> None:
        super().__init__()
        self.needed = needed


def _read(buffer: bytes, at: int) -> tuple[Reply, int]:
    """The reply that begins there, and where it ends; raises _TooShort."""
    code, at = _integer(buffer, at)
    message, at = _field(buffer, at)
    predictions: list[Prediction] = []
    while True:
        length, at = _integer(buffer, at)
        if length < 0:
            return Reply(code, message, predictions), at
        at += length
        if at > len(buffer):
            raise _TooShort(at)
        request_id = buffer[at - length : at]
        content_type, at = _field(buffer, at)
        status, at = _integer(buffer, at)
        _, at = _field(buffer, at)  # the status's phrase, which ASGI has no place for
        count, at = _integer(buffer, at)
        headers = []
        for _ in range(count):
            name, at = _field(buffer, at)
            value, at = _field(buffer, at)
            headers.append((name, value))
        body, at = _field(buffer, at)
        predictions.append(Prediction(request_id, content_type, status, headers, body))


def _integer(buffer: bytes, at: int) -> tuple[int, int]:
    end = at + 4
    if end > len(buffer):
        raise _TooShort(end)
    return int.from_bytes(buffer[at:end], "big", signed=True), end


def _field(buffer: bytes, at: int) -> tuple[bytes, int]:
    start = at + 4
    end = start + int.from_bytes(buffer[at:start], "big")
    if start > len(buffer) or end > len(buffer):
        raise _TooShort(max(start, end))
    return buffer[start:end], end
