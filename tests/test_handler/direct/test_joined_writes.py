"""What is written in one step of the loop arrives whole and in order; a client that has left is no error."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvloop

from interpool.handler.direct.joined_writes import JoinedWrites


@asynccontextmanager
async def _connected() -> AsyncIterator[tuple[JoinedWrites, asyncio.StreamReader, list[dict[str, Any]]]]:
    """A connection's transport, what its client reads, and what the loop reports."""
    loop = asyncio.get_running_loop()
    reported: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: reported.append(context))
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_unix_connection(sock=theirs)
    transport, _ = await loop.create_unix_connection(asyncio.Protocol, sock=ours)
    try:
        yield JoinedWrites(transport), reader, reported
    finally:
        transport.abort()
        writer.close()


async def _both_arrive_in_order() -> None:
    async with _connected() as (joined, client, _):
        joined.write(b"head ")
        assert joined.get_write_buffer_size() == 5
        joined.write(b"body")
        assert joined.get_write_buffer_size() == 0
        assert await client.readexactly(9) == b"head body"


async def _one_alone_arrives() -> None:
    async with _connected() as (joined, client, _):
        for part in (b"one", b"two", b"three"):
            joined.write(part)
            assert await client.readexactly(len(part)) == part


async def _all_arrives_before_the_end() -> None:
    async with _connected() as (joined, client, _):
        joined.write(b"head")
        joined.close()
        assert await client.read() == b"head"


async def _nothing_is_reported_if_the_connection_has_ended_meanwhile() -> None:
    async with _connected() as (joined, client, reported):
        joined.write(b"head")
        joined.abort()
        assert await client.read() == b""
        await asyncio.sleep(0.01)
        assert reported == []


@pytest.mark.parametrize(
    "case",
    [
        _both_arrive_in_order,
        _one_alone_arrives,
        _all_arrives_before_the_end,
        _nothing_is_reported_if_the_connection_has_ended_meanwhile,
    ],
    ids=lambda case: case.__name__.strip("_").replace("_", " "),
)
def test_what_is_written(case: Any) -> None:
    uvloop.run(case())
