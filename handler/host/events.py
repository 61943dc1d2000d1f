"""The events of the host's control thread: descriptors that become readable, and calls to wake it.

A failure of one event's handler is logged, and the others are handled (survival.py).
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass

from interpool.handler.host.survival import Survival


class Events:
    """Calls back when descriptors become readable. For the control thread, except for ``wake``.

    Args:
        survival: calls the handlers, and survives those that fail.
        on_wake: called after ``wake``; once for several calls of it that come together.
    """

    def __init__(self, survival: Survival, on_wake: Callable[[], None]) -> None:
        self._survival = survival
        self._on_wake = on_wake
        self._selector = selectors.DefaultSelector()
        self._wake_read, self._wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._closing = threading.RLock()  # a signal's handler may wake the thread while that wakes itself
        self.watch(self._wake_read, self._take_wake)

    def watch(self, source: int | socket.socket, react: Callable[[], None]) -> None:
        """Have a handler called each time that a descriptor is readable, until ``unwatch``.

        Args:
            source: the descriptor or the socket.
            react: the handler.

        Raises:
            OSError: the kernel cannot watch it.
        """
        self._selector.register(source, selectors.EVENT_READ, _Watch(react))

    def unwatch(self, source: int | socket.socket) -> None:
        """Stop watching a descriptor, if it is watched; an event of it that has come already is dropped."""
        with contextlib.suppress(KeyError):
            self._selector.unregister(source).data.active = False

    def react(self, timeout_s: float) -> None:
        """Handle the events that have come.

        Args:
            timeout_s: the most seconds to wait for the first one.
        """
        for key, _ in self._selector.select(timeout_s):
            if key.data.active:  # the handler of an earlier event may have ended this one's watch
                self._survival.attempt(key.data.react, "an event could not be handled")

    def wake(self) -> None:
        """Have ``on_wake`` called soon; after ``close``, do nothing. Any thread."""
        with self._closing:
            if self._wake_write >= 0:
                os.write(self._wake_write, b"\0")

    def wake_on_signals(self) -> None:
        """Have each signal that has a Python handler wake the thread; for the main thread only."""
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)

    def close(self) -> None:
        """Close what it has opened; what it watches is the caller's."""
        self._selector.close()
        with self._closing:
            os.close(self._wake_read)
            os.close(self._wake_write)
            self._wake_write = -1

    def _take_wake(self) -> None:
        os.read(self._wake_read, 4096)
        self._on_wake()


@dataclass
class _Watch:
    react: Callable[[], None]
    active: bool = True
