"""Prints and log lines of a call, sent to the pipes of the worker that it runs for.

All interpreters share the process's file descriptors 1 and 2, which are the host's log. Inside
an interpreter ``sys.stdout`` and ``sys.stderr`` are therefore replaced once by a stream that
looks up the running call's own descriptors. The look-up is by context variable: it follows a
call into ``asyncio`` tasks and ``asyncio.to_thread``. A thread that a model starts itself prints for
whichever call of its model runs at that moment: a call's descriptors are its own only as long as it
runs. What such a thread prints between calls, and what native code prints, reaches the host's log.
"""

from __future__ import annotations

import io
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TextIO, cast

_PIPE_LIMIT = 1 << 20


class _Lines:
    """One worker's stdout or stderr during one call: whole lines, in order, from any of its threads."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._pending = b""
        self._lock = threading.Lock()
        self.ended = False

    def write(self, data: bytes) -> bool:
        """Whether the call still runs; if it does not, nothing is written."""
        with self._lock:
            if self.ended:
                return False
            whole, newline, rest = (self._pending + data).rpartition(b"\n")
            if not newline and len(rest) > _PIPE_LIMIT:
                whole, rest = rest, b""
            self._pending = rest
            self._send(whole + newline)
        return True

    def flush(self) -> None:
        with self._lock:
            if not self.ended:
                self._send_rest()

    def end(self) -> None:
        """Nothing is written to the descriptor any more: it may soon be another file's."""
        with self._lock:
            self._send_rest()
            self.ended = True

    def _send_rest(self) -> None:
        rest, self._pending = self._pending, b""
        self._send(rest)

    def _send(self, data: bytes) -> None:
        # A pipe that nobody reads any more must not fail the model's call.
        with suppress(OSError):
            view = memoryview(data)
            while view:
                view = view[os.write(self.descriptor, view) :]


class _Call:
    """A call: whose it is, its stdout and its stderr."""

    def __init__(self, model: object, stdout: int, stderr: int) -> None:
        self.model = model
        self.lines = (_Lines(stdout), _Lines(stderr))


_current: ContextVar[_Call | None] = ContextVar("interpool_stdio", default=None)
_running: dict[object, _Call] = {}
_MODEL = "_interpool_model"  # of a thread: the model that started it


def _model() -> object:
    """Whose code prints; None: nobody's."""
    call = _current.get()
    return getattr(threading.current_thread(), _MODEL, None) if call is None else call.model


def _calls() -> Iterator[_Call]:
    """Where lines go, the best first: the call's own, then one of its model's that runs now."""
    call = _current.get()
    if call is not None:
        yield call
    running = _running.get(_model())
    if running is not None and running is not call:
        yield running


class _RoutedBytes(io.RawIOBase):
    """The bytes below ``sys.stdout`` or ``sys.stderr``."""

    def __init__(self, index: int) -> None:
        self._index = index
        self._host = index + 1  # the process's own descriptor

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        running = (call.lines[self._index] for call in _calls())
        return next((lines.descriptor for lines in running if not lines.ended), self._host)

    def write(self, data: object, /) -> int:
        content = bytes(data)  # type: ignore[call-overload]
        if not any(call.lines[self._index].write(content) for call in _calls()):
            with suppress(OSError):
                os.write(self._host, content)
        return len(content)

    def flush(self) -> None:
        for call in _calls():
            call.lines[self._index].flush()


def install() -> None:
    """Replace this interpreter's ``sys.stdout`` and ``sys.stderr``, and note which model starts a thread."""
    sys.stdout = _text(0, "strict")
    sys.stderr = _text(1, "backslashreplace")
    if not hasattr(threading.Thread.start, _MODEL):
        _note_threads()


def _note_threads() -> None:
    stock = threading.Thread.start

    def start(self: threading.Thread) -> None:
        """Stands in for ``threading.Thread.start``."""
        setattr(self, _MODEL, _model())
        stock(self)

    setattr(start, _MODEL, True)
    threading.Thread.start = start  # type: ignore[method-assign]


def _text(index: int, errors: str) -> TextIO:
    # Written through at once: a buffer here would mix the lines of different calls.
    buffer = cast("io.BufferedWriter", _RoutedBytes(index))
    return io.TextIOWrapper(buffer, encoding="utf-8", errors=errors, write_through=True)


@contextmanager
def to_worker(stdout: int, stderr: int, model: object = None) -> Iterator[None]:
    """Send what the enclosed call prints to these descriptors; they are not closed.

    Args:
        stdout: the worker's.
        stderr: likewise.
        model: the call's; its threads from earlier calls print here, too, unless it is None.
    """
    call = _Call(model, stdout, stderr)
    token = _current.set(call)
    if model is not None:
        _running[model] = call
    try:
        yield
    finally:
        _current.reset(token)
        if _running.get(model) is call:
            del _running[model]
        for lines in call.lines:
            lines.end()
