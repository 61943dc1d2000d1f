"""TorchServe's messages to its workers ("OTF"), as its frontend writes them."""

from __future__ import annotations

import struct


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
