"""Sends the prints and log lines of a call to the pipes of the worker for which it runs.

All interpreters share the process's file descriptors 1 and 2, which are the host's log. So each interpreter
replaces ``sys.stdout`` and ``sys.stderr`` once, by a stream that looks up the running call's own descriptors.
A context variable has them, so the look-up follows a call into ``asyncio`` tasks and ``asyncio.to_thread``.

A call has its descriptors only while it runs. So a thread that a model starts itself prints for the call of
its model that runs at that moment. If such a thread prints between calls, or if native code prints, the
output reaches the host's log.

A line is written when it is printed, with one exception. TorchServe's own lines of a request (the note that
it came, and metrics) are *held*. So all lines of a request whose handler prints nothing take one write. Held
lines are written

- before the next line that is printed;
- when code asks for the descriptor;
- before a part of a streamed answer;
- at the call's end;
- within two seconds: the host calls ``write_held``.

A call that has lasted for ``YOUNG_S`` holds no more lines. So the lines of a handler come in time, and all of
them. If a handler crashes or ends the process, TorchServe's note that its request came may be lost.
"""

from __future__ import annotations

import io
import os
import sys
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from types import TracebackType
from typing import Any, TextIO, cast

_PIPE_LIMIT = 1 << 20
_HELD_LIMIT = 1 << 14
YOUNG_S = 0.02


class _Lines:
    """One worker's stdout or stderr during its calls: whole lines, in order, from any of a call's threads."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._held = b""  # whole lines, before those that are pending
        self._pending = b""
        self._lock = threading.Lock()
        self.ended = True  # no call runs

    def write(self, data: bytes) -> bool:
        """Write if a call runs; returns whether one does."""
        with self._lock:
            if self.ended:
                return False
            self._write(data)
        return True

    def hold(self, data: bytes) -> bool:
        """Do as ``write``, for whole lines that may wait until ``flush``."""
        with self._lock:
            if self.ended:
                return False
            if self._pending:
                self._write(data)
            else:
                self._held += data
                if len(self._held) > _HELD_LIMIT:
                    self._send(b"")
        return True

    def flush(self) -> None:
        with self._lock:
            if not self.ended:
                self._send_rest()

    def flush_if_idle(self) -> None:
        """Write held lines, unless another thread is writing."""
        if self._lock.acquire(blocking=False):
            try:
                if not self.ended:
                    self._send(b"")
            finally:
                self._lock.release()

    def end(self) -> None:
        """Write the rest, and stop to use the descriptor: its number may soon belong to another file."""
        with self._lock:
            if self._held or self._pending:
                self._send_rest()
            self.ended = True

    def _write(self, data: bytes) -> None:
        whole, newline, rest = (self._pending + data).rpartition(b"\n")
        if not newline and len(rest) > _PIPE_LIMIT:
            whole, rest = rest, b""
        self._pending = rest
        if whole or newline:
            self._send(whole + newline)

    def _send_rest(self) -> None:
        rest, self._pending = self._pending, b""
        self._send(rest)

    def _send(self, data: bytes) -> None:
        held, self._held = self._held, b""
        left = held + data if held else data
        try:
            while left:
                left = left[os.write(self.descriptor, left) :]
        except OSError:  # a pipe without a reader must not make the model's call fail
            pass


class to_worker:  # noqa: N801 - a context manager
    """Send what the enclosed call prints to these descriptors; they are not closed.

    The object may be entered again for the next call of the same worker.

    Args:
        stdout: the worker's descriptor for stdout.
        stderr: the worker's descriptor for stderr.
        model: the directory of the call's model, whose threads from earlier calls print here, too; "": no
            threads do.
        notes: whether TorchServe's own lines of a request are printed.
        metrics: whether metrics' lines are printed; only TorchServe's frontend reads them.
    """

    def __init__(
        self, stdout: int, stderr: int, model: str = "", notes: bool = True, metrics: bool = True
    ) -> None:
        self.model = model
        self.notes = notes
        self.metrics = metrics
        self.lines = (_Lines(stdout), _Lines(stderr))
        self.is_loading = False  # see loading()
        self.requests: Collection[str] = ()  # ids of the requests that the call answers
        self._began = 0.0

    def __enter__(self) -> None:
        stdout, stderr = self.lines
        stdout.ended = stderr.ended = False
        self._began = time.monotonic()
        self._before = _current.set(self)
        if self.model:
            _running[self.model] = self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _current.reset(self._before)
        self.requests = ()
        if _running.get(self.model) is self:
            del _running[self.model]
        stdout, stderr = self.lines
        stdout.end()
        stderr.end()

    def flush(self) -> None:
        """Write what it has printed."""
        for lines in self.lines:
            lines.flush()

    def hold(self, data: bytes) -> bool:
        """Print whole lines, which may wait until the call's end if that is likely to be soon."""
        stdout = self.lines[0]
        return stdout.hold(data) if time.monotonic() - self._began < YOUNG_S else stdout.write(data)


_current: ContextVar[to_worker | None] = ContextVar("interpool_stdio", default=None)
_running: dict[str, to_worker] = {}
_MODEL = "_interpool_model"  # of a thread: the model that started it


def _model() -> str:
    """The directory of the model whose code prints; "" if it is no model's code."""
    call = _current.get()
    return starter_of(threading.current_thread()) if call is None else call.model


def starter_of(thread: threading.Thread | None) -> str:
    """Return the directory of the model whose call, or whose thread, has started a thread; "" if unknown."""
    return getattr(thread, _MODEL, "")


def _calls() -> Iterator[to_worker]:
    """Yield the calls to which lines may go: first the running call, then one of its model that runs now."""
    call = _current.get()
    if call is not None:
        yield call
    running = _running.get(_model())
    if running is not None and running is not call:
        yield running


@contextmanager
def loading() -> Iterator[None]:
    """Refuse to give out the running call's descriptors during the block, because a model is being loaded.

    The model would keep what it opens with a descriptor, and the number soon belongs to another file. The
    descriptors of a trial, of a load in advance and of a worker are closed before the model is unloaded.
    """
    call = _current.get()
    if call is None:
        yield
        return
    call.is_loading = True
    try:
        yield
    finally:
        call.is_loading = False


class _RoutedBytes(io.RawIOBase):
    """The bytes below ``sys.stdout`` or ``sys.stderr``. All models share it, so none of them closes it."""

    def __init__(self, index: int) -> None:
        self._index = index
        self._host = index + 1  # the process's own descriptor

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        for call in _calls():
            if call.is_loading:
                raise io.UnsupportedOperation("fileno: while a model is loaded, it has no descriptor to keep")
            lines = call.lines[self._index]
            if not lines.ended:
                lines.flush_if_idle()  # the caller may write there
                return lines.descriptor
        return self._host

    def write(self, data: object, /) -> int:
        content = bytes(data)  # type: ignore[call-overload]
        if not any(call.lines[self._index].write(content) for call in _calls()):
            with suppress(OSError):
                os.write(self._host, content)
        return len(content)

    def flush(self) -> None:
        for call in _calls():
            call.lines[self._index].flush()

    def close(self) -> None:
        # A wrapper that a model has made closes it, at the latest when it is collected with the model.
        self.flush()


class _RoutedText(io.TextIOWrapper):
    """``sys.stdout`` or ``sys.stderr``: one object for all models, which still works if a model closes it."""

    def close(self) -> None:
        self.flush()

    def detach(self) -> Any:
        self.flush()
        return self.buffer

    def reconfigure(self, **_: Any) -> None:
        self.flush()


_streams: list[TextIO] = []  # of this interpreter


def install() -> None:
    """Replace this interpreter's ``sys.stdout`` and ``sys.stderr``, and note which model starts a thread."""
    _streams[:] = sys.stdout, sys.stderr = _text(0, "strict"), _text(1, "backslashreplace")
    if not hasattr(threading.Thread.start, _MODEL):
        _note_threads()


def attributes() -> list[dict[str, Any]]:
    """Return what models have set on both streams, such as a ``write`` of their own."""
    return [vars(stream).copy() for stream in _streams]


def put_attributes(each: list[dict[str, Any]]) -> None:
    """Put in place what ``attributes`` has returned."""
    for stream, own in zip(_streams, each, strict=True):
        if (now := vars(stream)) != own:
            now.clear()
            now.update(own)


def _note_threads() -> None:
    stock = threading.Thread.start

    def start(self: threading.Thread) -> None:
        """Replaces ``threading.Thread.start``."""
        setattr(self, _MODEL, _model())
        stock(self)

    setattr(start, _MODEL, True)
    threading.Thread.start = start  # type: ignore[method-assign]


def _text(index: int, errors: str) -> TextIO:
    # Written through at once: a buffer here would mix the lines of different calls.
    buffer = cast("io.BufferedWriter", _RoutedBytes(index))
    return _RoutedText(buffer, encoding="utf-8", errors=errors, write_through=True)


def answers(requests: Collection[str]) -> bool:
    """Note the ids of the requests that the running call answers: its log lines have them.

    Returns:
        Whether TorchServe's own lines of the call are printed.
    """
    call = _current.get()
    if call is None:
        return True
    call.requests = requests
    return call.notes


def has_notes() -> bool:
    """Whether TorchServe's own lines of the running call are printed."""
    call = _current.get()
    return call is None or call.notes


def has_metrics() -> bool:
    """Whether metrics' lines of the running call are printed."""
    call = _current.get()
    return call is None or call.metrics


def requests() -> Collection[str]:
    """The ids of the requests that are answered now; none between calls."""
    return next((call.requests for call in _calls() if call.requests), ())


def hold(line: str) -> bool:
    """Print a whole line of TorchServe's own to the running call's stdout, at the call's end at the latest.

    Returns:
        False if no call runs, or if the line cannot be encoded. Then nothing has been printed.
    """
    call = _current.get()
    if call is None:
        return False
    try:
        data = line.encode()
    except UnicodeEncodeError:
        return False
    return call.hold(data)


def write_held(_: str = "") -> None:
    """Write the lines that are held. The host calls this while other code may run in this interpreter."""
    for call in list(_running.values()):
        for lines in call.lines:
            lines.flush_if_idle()
