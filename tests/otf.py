"""TorchServe's messages to its workers ("OTF"), as its frontend writes them."""

from __future__ import annotations

import struct
from collections.abc import Mapping


def integer(value: int) -> bytes:
    return struct.pack(">i", value)


def field(value: bytes | str) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return integer(len(data)) + data


def load(
    name: str = "model",
    path: str = "/models/model",
    *,
    batch: int = 1,
    handler: str = "h:handle",
    envelope: str = "",
    gpu: int = -1,
) -> bytes:
    model = field(name) + field(path) + integer(batch) + field(handler)
    return b"L" + model + integer(gpu) + field(envelope) + b"\1"


def predict(
    *bodies: bytes, headers: dict[str, str] | None = None, parameters: dict[str, bytes] | None = None
) -> bytes:
    """One batch of requests, each with a body and what else is given."""
    message = b"I"
    for number, body in enumerate(bodies):
        message += field(f"request-{number}")
        for name, value in (headers or {}).items():
            message += field(name) + field(value)
        message += integer(-1)
        for name, content in {**(parameters or {}), "body": body}.items():
            message += field(name) + field("application/octet-stream") + field(content)
        message += integer(-1)
    return message + integer(-1)


def predict_each(*requests: Mapping[str, tuple[str, bytes]]) -> bytes:
    """One batch of requests with fields of their own: name to content type and content."""
    message = b"I"
    for number, fields in enumerate(requests):
        message += field(f"request-{number}") + integer(-1)
        for name, (content_type, content) in fields.items():
            message += field(name) + field(content_type) + field(content)
        message += integer(-1)
    return message + integer(-1)


def answers(reply: bytes) -> dict[str, tuple[int, str, bytes]]:
    """Of each request of a batch, by its id: status, content type and body."""
    at = 0

    def number() -> int:
        nonlocal at
        at += 4
        return int(struct.unpack_from(">i", reply, at - 4)[0])

    def text() -> bytes:
        nonlocal at
        size = number()
        at += size
        return reply[at - size : at]

    number()
    text()
    found = {}
    while (size := number()) != -1:
        at += size
        name = reply[at - size : at].decode()
        content_type, status = text().decode(), number()
        text()
        for _ in range(number()):
            text()
            text()
        found[name] = status, content_type, text()
    return found
