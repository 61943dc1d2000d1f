"""The frontend's end of a served connection."""

from __future__ import annotations

import json
import os
import select
import socket
from collections.abc import Callable
from typing import Any

from interpool.native import InterpreterManager


class Client:
    """One end of a served connection.

    Attributes:
        socket: what TorchServe's frontend would hold.
        connection: what ``serve`` gave.
    """

    def __init__(
        self,
        manager: InterpreterManager,
        function: str = "describe",
        *,
        worker: str = "worker-1",
        affinity: str = "served model",
        module: str = "serving_guest",
        pinned: bool = False,
    ) -> None:
        self.socket, there = socket.socketpair()
        self.socket.settimeout(60)
        self.done = os.eventfd(0)
        self.connection = manager.serve(
            there.detach(),
            module=module,
            function=function,
            worker=worker,
            affinity=affinity,
            done_fd=self.done,
            pinned=pinned,
        )
        self._lines = self.socket.makefile("rb")
        self._announced = False

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def line(self) -> bytes:
        return self._lines.readline()

    def read(self, size: int) -> bytes:
        return self._lines.read(size)

    def ask(self, frame: bytes) -> Any:
        self.send(frame)
        return json.loads(self.line())

    def ended(self, timeout: float = 60) -> bool:
        """Is its end announced in time, by one 1, and is it no longer alive?"""
        ready, _, _ = select.select([self.done], [], [], timeout)
        self._announced = bool(ready) and os.eventfd_read(self.done) == 1
        return self._announced and not self.connection.alive

    def at_end(self) -> bool:
        return self.read(1) == b""

    def close(self) -> None:
        self._lines.close()
        self.socket.close()
        self.connection.close()
        assert self._announced or self.ended()
        os.close(self.done)


Connect = Callable[..., Client]
