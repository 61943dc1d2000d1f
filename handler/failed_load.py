"""A model that cannot be loaded: its workers end before TorchServe hears of it.

TorchServe unregisters a model whose registration failed, in the thread of the worker that failed,
which it has interrupted by then. If it finds a worker's process alive it waits for its end, and is
interrupted. Then the model stays registered, without workers, and its name is taken. So the
interpreter in which the load failed asks the host to end the shims, waits, and answers then.

One socket pair for each worker connects the two sides: ``end_shims`` runs in the interpreter,
``ShimsEnding`` in the host. Through it an interpreter also says that an ordinary model turned out to
need a process of its own, while it was served (``ask_for_own_process``).
"""

from __future__ import annotations

import contextlib
import os
import socket
import time

WHOLE_MODEL = b"m"
OWN_PROCESS = b"p"  # and the reason
OWN_INTERPRETERS = b"i"  # likewise
MESSAGE_LIMIT = 4096
_THIS_WORKER = b"w"
_GONE = b"."

_SETTLE_S = 0.25  # workers are started together, and the last may be that much later
_PATIENCE_S = 3.0
_REAP_S = 0.05  # TorchServe notes a process's end in a thread of its own


def end_shims(host: int, whole_model: bool) -> None:
    """Have the host end the worker's shim, or all of the model's, and wait until they are gone.

    For the thread that is about to answer a load command in an interpreter.

    Args:
        host: descriptor of the interpreter's end of the worker's socket pair.
        whole_model: whether no worker of the model can be loaded.
    """
    if whole_model:
        time.sleep(_SETTLE_S)
    if _ask(host, WHOLE_MODEL if whole_model else _THIS_WORKER):
        time.sleep(_REAP_S)


def ask_for_own_process(host: int, reason: str) -> None:
    """Have the host leave the worker's model to TorchServe's own workers, from the next worker on.

    For the thread that is about to answer a batch and to close the connection.

    Args:
        host: descriptor of the interpreter's end of the worker's socket pair.
        reason: for the model log.
    """
    _ask(host, OWN_PROCESS + reason.encode()[: MESSAGE_LIMIT - 1])


def ask_for_own_interpreters(host: int, reason: str) -> None:
    """Have the worker's model served by interpreters of its own, from the next lease on.

    For the thread that is about to answer in one that it shares.

    Args:
        host: descriptor of the interpreter's end of the worker's socket pair.
        reason: for the host's log.
    """
    _ask(host, OWN_INTERPRETERS + reason.encode()[: MESSAGE_LIMIT - 1])


def _ask(host: int, message: bytes) -> bool:
    """Wait until the host has done what the message asks; False if it is gone, or takes too long."""
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(host)) as connection:
        connection.settimeout(_PATIENCE_S)
        connection.sendall(message)
        connection.recv(1)
        return True
    return False


def take_note(waiting: socket.socket) -> None:
    """Let the interpreter that waits for the host go on."""
    with contextlib.suppress(OSError):
        waiting.send(_GONE, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)


class ShimsEnding:
    """The shims that one failed load has to wait for. For the host's control thread.

    Args:
        waiting: the host's end of the socket pair of the worker whose load failed.
    """

    def __init__(self, waiting: socket.socket) -> None:
        self._waiting = waiting
        self._left: set[int] = set()

    def wait_for(self, pid: int) -> int | None:
        """A pidfd that becomes readable at the process's end, or None if it has ended."""
        try:
            descriptor = os.pidfd_open(pid)
        except OSError:
            return None
        self._left.add(descriptor)
        return descriptor

    def ended(self, descriptor: int) -> None:
        """The process of that pidfd has ended; with the last one, the interpreter may answer."""
        self._left.discard(descriptor)
        os.close(descriptor)
        self.answer_if_done()

    def answer_if_done(self) -> None:
        """Let the interpreter answer, if no shim is left to wait for."""
        if not self._left:
            take_note(self._waiting)
