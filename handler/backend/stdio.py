"""Prints and log lines of a call, sent to the pipes of the worker that it runs for.

All interpreters share the process's file descriptors 1 and 2, which are the host's log. Inside
an interpreter ``sys.stdout`` and ``sys.stderr`` are therefore replaced once by a stream that
looks up the running call's own descriptors. The look-up is by context variable: it follows a
call into ``asyncio`` tasks and ``asyncio.to_thread``. Threads that a model starts itself, and
what native code prints, reach the host's log.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TextIO, cast

_PIPE_LIMIT = 1 << 20


class _Lines:
    """One worker's stdout or stderr during one call: whole lines, in order."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._pending = b""

    def write(self, data: bytes) -> None:
        self._pending += data
        whole, newline, rest = self._pending.rpartition(b"\n")
        if newline or len(rest) > _PIPE_LIMIT:
            self._send(whole + newline if newline else rest)
            self._pending = rest if newline else b""

    def flush(self) -> None:
        if self._pending:
            self._send(self._pending)
            self._pending = b""

    def _send(self, data: bytes) -> None:
        # A pipe that nobody reads any more must not fail the model's call.
        with suppress(OSError):
            view = memoryview(data)
            while view:
                view = view[os.write(self.descriptor, view) :]


_current: ContextVar[tuple[_Lines, _Lines] | None] = ContextVar("interpool_stdio", default=None)


class _RoutedBytes(io.RawIOBase):
    """The bytes below ``sys.stdout`` or ``sys.stderr``."""

    def __init__(self, index: int) -> None:
        self._index = index
        self._host = index + 1  # the process's own descriptor

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        lines = _current.get()
        return self._host if lines is None else lines[self._index].descriptor

    def write(self, data: object, /) -> int:
        content = bytes(data)  # type: ignore[call-overload]
        lines = _current.get()
        if lines is None:
            with suppress(OSError):
                os.write(self._host, content)
        else:
            lines[self._index].write(content)
        return len(content)

    def flush(self) -> None:
        lines = _current.get()
        if lines is not None:
            lines[self._index].flush()


def install() -> None:
    """Replace this interpreter's ``sys.stdout`` and ``sys.stderr``."""
    sys.stdout = _text(0, "strict")
    sys.stderr = _text(1, "backslashreplace")


def _text(index: int, errors: str) -> TextIO:
    # Written through at once: a buffer here would mix the lines of different calls.
    buffer = cast("io.BufferedWriter", _RoutedBytes(index))
    return io.TextIOWrapper(buffer, encoding="utf-8", errors=errors, write_through=True)


@contextmanager
def to_worker(stdout: int, stderr: int) -> Iterator[None]:
    """Send what the enclosed call prints to these descriptors; they are not closed."""
    lines = (_Lines(stdout), _Lines(stderr))
    token = _current.set(lines)
    try:
        yield
    finally:
        _current.reset(token)
        for stream in lines:
            stream.flush()
