"""What interpreters report to the pool host about its workers, while they answer for them.

Datagrams of one socket pair for each host: both sides are in one process. If the socket
is full, a datagram is dropped, because a call must not wait.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
from dataclasses import dataclass
from typing import Literal, Self

from interpool.handler.plain_json import as_json

_TEXT_LIMIT = 4000  # of a reason: a datagram has to fit into the socket's buffer
SPANS_LIMIT = 40_000  # characters of spans in one report
_MOST_BYTES = 1 << 18  # of a datagram: more than a socket's buffer takes


Kind = Literal[
    "loading",
    "loaded",
    "load_failed",
    "searching",
    "searched",
    "started",
    "not_started",
    "ended",
    "traces",
    "spans",
    "device_lost",
]


@dataclass(frozen=True)
class Report:
    """One thing that happened in an interpreter.

    Attributes:
        kind: one of these. A model is being loaded, was loaded or could not be, in any interpreter. A search
            for other models' traces, before a worker's frame, begins or has ended. A worker is ready for
            requests. It ends, because its model cannot be loaded, or by what its model did
            (``sys.exit``, say). Its model has left traces that its neighbours would meet. Spans of
            OpenTelemetry's have ended. The process has lost its GPU while it served this worker.
        pid: of the worker's shim.
        interpreter: its number.
        seconds: how long the load took.
        reason: why it failed, or ended; what the traces are; or what CUDA said.
        model: the name that the worker's model is registered by, "" if this report does not say.
        spans: as ``handler.spans`` encodes them.
    """

    kind: Kind
    pid: int
    interpreter: int
    seconds: float = 0.0
    reason: str = ""
    model: str = ""
    spans: tuple[str, ...] = ()

    def send(self, descriptor: int) -> bool:
        """Send it to the host; for a thread inside an interpreter. Never raises, never waits.

        Returns:
            Whether there was room for it.
        """
        fields = {**vars(self), "reason": self.reason[:_TEXT_LIMIT]}
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as end:
            end.setblocking(False)  # a model may have set a default timeout
            end.send(as_json(fields).encode())
            return True
        return False

    @classmethod
    def receive(cls, end: socket.socket) -> Self:
        """The next report; raises BlockingIOError if there is none."""
        fields = json.loads(end.recv(_MOST_BYTES))
        return cls(**{**fields, "spans": tuple(fields["spans"])})
