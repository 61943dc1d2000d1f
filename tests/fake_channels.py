"""Channels to workers and a host that a test answers for, in place of those of a pool."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any

from interpool.handler.direct.channels import Channels
from interpool.handler.direct.host_link import Registered


class FakeChannel:
    """Stands for a worker's channel: keeps the batches that come, and answers when the test asks."""

    def __init__(self, number: int, hear: Callable[[Any], None]) -> None:
        self.number = number
        self.batches: list[list[bytes]] = []
        self.refuses: Exception | None = None
        self._hear = hear
        self._loop = asyncio.get_running_loop()

    def predict(self, requests: list[Any]) -> None:
        if self.refuses is not None:
            raise self.refuses
        self.batches.append([name for name, _, _ in requests])

    def load(self) -> None:
        """Answer the load of the model."""
        self._hear((200, b"loaded", []))

    def end(self) -> None:
        """End on the worker's side."""
        self._hear(None)

    def close(self) -> None:
        self._loop.call_soon(self._hear, None)

    def answer(self) -> None:
        said: Any = [(name, b"", 200, [], name) for name in self.batches[-1]]
        self._hear((200, b"", said))


class FakeChannels(Channels):
    """Opens these, and keeps them."""

    def __init__(self) -> None:
        self.opened: list[FakeChannel] = []

    def open(self, hear: Callable[[Any], None], load_command: bytes) -> Any:
        self.opened.append(FakeChannel(len(self.opened), hear))
        return self.opened[-1]


class FakeHost:
    """Stands for the pool's host: takes each worker, and ends it when the test asks."""

    def __init__(self) -> None:
        self._workers: dict[str, socket.socket] = {}

    def __enter__(self) -> FakeHost:
        return self

    def __exit__(self, *_why: object) -> None:
        for worker in self._workers.values():
            worker.close()

    async def register(self, _runtime_dir: str, model_dir: str, *_more: object) -> Registered:
        if before := self._workers.get(model_dir):
            before.close()
        ours, self._workers[model_dir] = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        return Registered(ours)

    def end(self, model_dir: str, why: bytes = b"gone") -> None:
        with self._workers.pop(model_dir) as worker:
            worker.send(why)


async def until(condition: Callable[[], object]) -> None:
    """Wait for the condition, for half a minute at most."""
    for _ in range(3000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not come")
