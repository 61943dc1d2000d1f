"""What interpreters tell the pool host about its workers, while they answer for them.

Datagrams of one socket pair for each host: both sides are in one process, and one that nobody
has read yet is lost rather than waited for.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
from dataclasses import dataclass
from typing import Literal, Self

_TEXT_LIMIT = 4000  # of a reason: a datagram has to fit into the socket's buffer


class _Encoder(json.JSONEncoder):
    """As Python made it: a model may have replaced the methods since."""

    encode = json.JSONEncoder.encode
    iterencode = json.JSONEncoder.iterencode


_encoder = _Encoder()

Kind = Literal["loading", "loaded", "load_failed", "started", "not_started", "ended", "traces", "device_lost"]


@dataclass(frozen=True)
class Report:
    """One thing that happened in an interpreter.

    Attributes:
        kind: a model is being loaded, was loaded or could not be, in any interpreter; a worker is
            ready for requests, or ends because its model cannot be loaded, or by what its model
            did (``sys.exit``, say); its model has left traces that its neighbours would meet; or the
            process has lost its GPU while it served this worker.
        pid: of the worker's shim.
        interpreter: where, by number.
        seconds: how long the load took.
        reason: why it failed, or ended; what the traces are; or what CUDA said.
        model: the name that the worker's model is registered by, "" if this report does not say.
    """

    kind: Kind
    pid: int
    interpreter: int
    seconds: float = 0.0
    reason: str = ""
    model: str = ""

    def send(self, descriptor: int) -> None:
        """Tell the host; for a thread inside an interpreter. Never raises, never waits."""
        fields = {**vars(self), "reason": self.reason[:_TEXT_LIMIT]}
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as end:
            end.setblocking(False)  # a model may have set a default timeout
            end.send(_encoder.encode(fields).encode())

    @classmethod
    def receive(cls, end: socket.socket) -> Self:
        """The next report; raises BlockingIOError if there is none."""
        return cls(**json.loads(end.recv(65536)))
