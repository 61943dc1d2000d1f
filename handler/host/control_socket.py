"""The connections to the host's control socket: who comes, who is turned away, who follows.

What is said on them is control.py's subject.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path

from interpool.handler.frontend import shim
from interpool.handler.host import control
from interpool.handler.host.events import Events
from interpool.handler.host.limits import Limits
from interpool.handler.host.survival import Survival


class ControlSocket:
    """Accepts this user's processes. For the control thread.

    Args:
        runtime_dir: where the socket is; its lock is held.
        events: calls back when one of them says something.
        limits: knows whether the process has descriptors left.
        survival: ends the host if it never will.
        on_message: is called if a message has come, or the end, from one of the peers.
    """

    def __init__(
        self,
        runtime_dir: Path,
        events: Events,
        limits: Limits,
        survival: Survival,
        on_message: Callable[[socket.socket], None],
    ) -> None:
        self._events = events
        self._limits = limits
        self._survival = survival
        self._on_message = on_message
        self._peers: set[socket.socket] = set()  # that are no worker's
        self._followers: set[socket.socket] = set()  # of the peers: who hears of workers
        self._reserve = _reserve()
        self._listener = control.listen(runtime_dir)
        events.watch(self._listener, self._accept)

    @property
    def is_asked(self) -> bool:
        """Whether a peer is there that may become a worker, or asks for something."""
        return bool(self._peers - self._followers)

    @property
    def followers(self) -> list[socket.socket]:
        """The peers that hear of TorchServe's workers."""
        return list(self._followers)

    def follow(self, peer: socket.socket) -> None:
        """Make a peer one that hears of workers."""
        self._followers.add(peer)

    def take(self, peer: socket.socket) -> None:
        """Leave a peer to a worker, which closes it. It is watched as before."""
        self._peers.discard(peer)

    def detach(self, peer: socket.socket) -> None:
        """Leave a peer to the caller, who closes it. It is not watched any more."""
        self._events.unwatch(peer)
        self._peers.discard(peer)

    def drop(self, peer: socket.socket) -> None:
        """Close the connection to a peer."""
        self.detach(peer)
        self._followers.discard(peer)
        peer.close()

    def close(self) -> None:
        """Close the socket and every connection that is no worker's; failures are logged."""
        attempt = self._survival.attempt
        attempt(lambda: self._events.unwatch(self._listener), "the control socket could not be left")
        attempt(self._listener.close, "the control socket could not be closed")
        for peer in list(self._peers):
            attempt(partial(self.drop, peer), "a connection could not be closed")

    def _accept(self) -> None:
        try:
            peer, _ = self._listener.accept()
        except (BlockingIOError, ConnectionError):
            return
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
            if not self._limits.restore():  # else it is asked again
                self._turn_away()
            return
        if not control.same_user(peer):
            peer.close()
            return
        peer.setblocking(False)
        self._peers.add(peer)
        self._events.watch(peer, lambda: self._on_message(peer))

    def _turn_away(self) -> None:
        """Accept with the descriptor that is kept for this, say that there is no other, and close."""
        if self._reserve >= 0:
            os.close(self._reserve)
            self._reserve = -1
        try:
            peer, _ = self._listener.accept()
        except OSError:
            if self._limits.lowered:
                self._survival.despair(self._limits.lowered)
            raise
        with peer:
            control.send(peer, "refused", self._limits.exhausted())
            with contextlib.suppress(OSError):  # what is not read makes the other side hear of that first
                peer.recv(shim.MESSAGE_LIMIT, socket.MSG_DONTWAIT)
        self._reserve = _reserve()


def _reserve() -> int:
    """A descriptor to be given up for one that is needed more."""
    return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
