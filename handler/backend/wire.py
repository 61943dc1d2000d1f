"""Replaces the socket that TorchServe's own backend code reads and writes.

The pool reads whole frames without Python. ``ts.protocol.otf_message_handler`` decodes them through
``FrameReader``. Streaming handlers write their intermediate replies through ``ReplyWriter``.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable

_PEEK_PATIENCE_S = 30.0
_PEEK_PAUSE_S = 0.001


class TruncatedFrameError(ValueError):
    """A frame has fewer bytes than it announces: the frontend and the pool disagree."""


class FrameReader:
    """Returns a frame's bytes as a socket's ``recv`` would."""

    def __init__(self, frame: bytes) -> None:
        self._frame = memoryview(frame)
        self._at = 0

    def recv(self, length: int) -> memoryview:
        """Return the next ``length`` bytes.

        Raises:
            TruncatedFrameError: there are fewer.
        """
        end = self._at + length
        if end > len(self._frame):
            raise TruncatedFrameError(f"the frame has {len(self._frame)} bytes, {end} or more were announced")
        part = self._frame[self._at : end]
        self._at = end
        return part


class FramePeeker:
    """Returns the bytes that wait in a socket, and leaves them there.

    Attributes:
        frame: all bytes that were returned.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.frame = b""

    def recv(self, length: int) -> bytes:
        """Return the next ``length`` bytes.

        Raises:
            TruncatedFrameError: they did not come within ``_PEEK_PATIENCE_S`` seconds, or the stream ended.
            OSError: the socket cannot be read.
        """
        begin, end = len(self.frame), len(self.frame) + length
        give_up = time.monotonic() + _PEEK_PATIENCE_S
        with socket.socket(fileno=os.dup(self._descriptor)) as stream:
            # A default timeout that a model has set makes it non-blocking, and with it the connection.
            stream.settimeout(None)
            while len(self.frame) < end:
                self.frame = stream.recv(end, socket.MSG_PEEK)
                if len(self.frame) < end:  # MSG_PEEK cannot wait for more bytes than there are already
                    if not self.frame or time.monotonic() > give_up:
                        raise TruncatedFrameError(
                            f"the stream has {len(self.frame)} bytes, {end} or more were announced"
                        )
                    time.sleep(_PEEK_PAUSE_S)
        return self.frame[begin:end]


class ReplyWriter:
    """Replaces the socket to which streaming handlers write parts of an answer.

    Args:
        send: sends a part; raises OSError if the frontend is gone.
        before: is called before each part is sent.
        answers: whether the running call answers the request with that id. A model's thread may send a part
            when its call has ended, and the connection is another request's.

    Attributes:
        sending: held while a part is sent, and by a call when it ends: what ``answers`` says stays true until
            the part is sent.
    """

    def __init__(
        self, send: Callable[[bytes], None], before: Callable[[], None], answers: Callable[[str], bool]
    ) -> None:
        self._send = send
        self._before = before
        self._answers = answers
        self.sending = threading.RLock()

    def sendall(self, data: bytes) -> None:
        """Send all of ``data``, a part of an answer.

        Raises:
            OSError: the frontend is gone, or the call that answers the part's request has ended.
        """
        request = _request_of(data)
        with self.sending:
            if not self._answers(request):
                raise BrokenPipeError(
                    f"the request {request!r} has its answer already: this part comes after it"
                )
            self._before()
            self._send(data)


def _request_of(reply: bytes) -> str:
    """Return the id of a reply's first request; it follows the code and the message."""
    reader = FrameReader(reply)
    reader.recv(4)
    for _ in range(2):
        found = bytes(reader.recv(int.from_bytes(reader.recv(4), "big")))
    return found.decode()
