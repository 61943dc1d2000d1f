"""A model that cannot be loaded: its shims end before TorchServe hears of it.

TorchServe unregisters a model whose registration failed, in the thread of the worker that failed,
which it has interrupted by then. If it finds a worker's process alive it waits for its end, is
interrupted in that, and keeps the model: registered, without workers, its name taken. So the
interpreter that loads asks the host to end the shims, waits, and answers then.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time

WHOLE_MODEL = b"m"
THIS_WORKER = b"w"
_GONE = b"."

_SETTLE_S = 0.25  # workers are started together, and the last may be that much later
_PATIENCE_S = 3.0
_REAP_S = 0.05  # TorchServe notes a process's end in a thread of its own


def part(host: int, whole_model: bool) -> None:
    """Have the host end the worker's shim, or all of the model's, and wait until they are gone.

    For the thread that is about to answer a load command in an interpreter.

    Args:
        host: descriptor of the worker's end of the host's socket.
        whole_model: whether no worker of the model can be loaded.
    """
    if whole_model:
        time.sleep(_SETTLE_S)
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(host)) as connection:
        connection.settimeout(_PATIENCE_S)
        connection.sendall(WHOLE_MODEL if whole_model else THIS_WORKER)
        connection.recv(1)
        time.sleep(_REAP_S)


class Parting:
    """The host's side for one worker that has asked. For the host's control thread."""

    def __init__(self, asked_by: socket.socket) -> None:
        self._asked_by = asked_by
        self._left: set[int] = set()

    def wait_for(self, pid: int) -> int | None:
        """A pidfd that becomes readable at the process's end, or None if it has ended."""
        try:
            descriptor = os.pidfd_open(pid)
        except OSError:
            return None
        self._left.add(descriptor)
        return descriptor

    def gone(self, descriptor: int) -> None:
        """The process of that pidfd has ended; with the last one, the interpreter may answer."""
        self._left.discard(descriptor)
        os.close(descriptor)
        self.answer_if_done()

    def answer_if_done(self) -> None:
        """Let the interpreter answer, if nobody is left to wait for."""
        if not self._left:
            with contextlib.suppress(OSError):
                self._asked_by.send(_GONE, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
